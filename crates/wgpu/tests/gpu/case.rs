//! Cases on wgpu.

use std::sync::OnceLock;

use phonograph_graph::Schedule;
use phonograph_wgpu::{Bindings, Exec, OpenError, Shader, Wgpu};

pub use self::gpu as device;
pub use crate::shared_case::{Case, Machine, add_one, check, tensor, tensor_of, view};

/// A device of its own, or the reason why there is none in the output.
pub fn gpu() -> Option<Wgpu> {
    // The first is kept, and its driver with it: to load that anew takes longer than a test.
    static KEPT: OnceLock<Result<Wgpu, OpenError>> = OnceLock::new();
    match KEPT.get_or_init(Wgpu::new) {
        Ok(kept) => Some(Wgpu::on(kept.adapter()).unwrap()),
        Err(error) => {
            eprintln!("skipped: {error}");
            None
        }
    }
}

impl Case {
    /// Instantiates on wgpu with the contents in place.
    pub fn instantiate(&self, gpu: &mut Wgpu, schedule: &Schedule) -> Exec {
        let compile = |&(name, source): &(&'static str, &str)| {
            (name, Shader::new(source, name).unwrap_or_else(|error| panic!("{error}")))
        };
        let shaders: Vec<(&str, Shader)> = self.kernels.iter().map(compile).collect();
        let bindings = shaders.iter();
        let bindings = bindings.fold(Bindings::new(), |b, (name, shader)| b.kernel(name, shader));
        let exec = gpu.instantiate(&self.graph, schedule, &bindings);
        let exec = exec.unwrap_or_else(|error| panic!("{error}"));
        for buffer in self.external() {
            gpu.write(exec.memory(buffer).unwrap(), &self.first(buffer)).unwrap();
        }
        exec
    }
}

impl Machine for Wgpu {
    fn replayed(&mut self, case: &Case) -> Vec<Vec<u8>> {
        let mut exec = case.instantiate(self, &Schedule::sequential(&case.graph));
        (0..case.replays).for_each(|_| self.replay(&mut exec).unwrap());
        let external = case.external();
        let memory = external.iter().map(|&buffer| exec.memory(buffer).unwrap());
        memory.map(|memory| self.read::<u8>(memory).unwrap()).collect()
    }

    /// One queue keeps every order.
    fn takes_weak_edges(&self) -> bool {
        true
    }
}
