//! A replay allocates nothing of its own: no more than the same commands given to wgpu directly. Alone in its process: the
//! allocator counts for all threads.

#[path = "../../runtime/tests/counting/mod.rs"]
mod counting;

use phonograph_graph::{Arg, DType, Expr, GraphBuilder, Schedule, View};
use phonograph_kernels::wgsl::{self, ENTRY};
use phonograph_wgpu::{Bindings, Wgpu};

/// The median of the allocations that a few runs make, after some that fill wgpu's own pools.
fn allocations(mut run: impl FnMut(u32)) -> u64 {
    let mut counts: Vec<u64> = (0..16)
        .map(|round| {
            let before = counting::allocations();
            run(round);
            counting::allocations() - before
        })
        .skip(8)
        .collect();
    counts.sort_unstable();
    counts[counts.len() / 2]
}

const KERNELS: usize = 16;

#[test]
fn replays_allocate_no_more_than_wgpu_does() {
    let mut gpu = match Wgpu::new() {
        Ok(gpu) => gpu,
        Err(error) => return eprintln!("skipped: {error}"),
    };
    // A chain between two buffers, each of whose kernels has a block of its own, because a slot may change it.
    let mut b = GraphBuilder::new();
    let ids = ["x", "y"].map(|name| b.external_buffer(name, 4096));
    let views = ids.map(|id| View::contiguous(id, DType::F32, &[1024]).unwrap());
    let by = b.slot("by", 1.0f32);
    let add = Expr::build(|e| e.output(e.input(DType::F32) + e.param(DType::F32))).unwrap();
    let add = std::sync::Arc::new(add);
    for at in 0..KERNELS {
        let (from, to) = (views[at % 2], views[(at + 1) % 2]);
        b.add_elementwise("add", add.clone(), &[from], &[Arg::Slot(by)], &[to]);
    }
    let graph = b.build().unwrap();
    let mut exec =
        gpu.instantiate(&graph, &Schedule::sequential(&graph), &Bindings::new()).unwrap();
    let memory = ids.map(|id| exec.memory(id).unwrap().clone());
    let ours = allocations(|round| {
        exec.set(by, round as f32).unwrap();
        gpu.replay(&mut exec).unwrap();
    });

    let kernel = graph.nodes()[0].kernel().unwrap();
    let source = wgsl::kernel(kernel, &[0, 1]).unwrap().source;
    let raw = Raw::new(&gpu, &source, memory.each_ref().map(|memory| memory.buffer()));
    let (device, queue) = gpu.handles();
    let theirs = allocations(|round| raw.run(device, queue, round));
    assert_eq!(ours, theirs, "a replay of {KERNELS} kernels, and wgpu alone");
}

/// The same commands without us.
struct Raw {
    pipeline: wgpu::ComputePipeline,
    groups: [wgpu::BindGroup; 2],
    block: wgpu::Buffer,
    block_group: wgpu::BindGroup,
    stride: u32,
}

impl Raw {
    fn new(gpu: &Wgpu, source: &str, buffers: [&wgpu::Buffer; 2]) -> Self {
        let (device, _) = gpu.handles();
        let entry = |binding, ty, has_dynamic_offset| wgpu::BindGroupLayoutEntry {
            binding,
            visibility: wgpu::ShaderStages::COMPUTE,
            ty: wgpu::BindingType::Buffer { ty, has_dynamic_offset, min_binding_size: None },
            count: None,
        };
        let layout = |entries: &[wgpu::BindGroupLayoutEntry]| {
            let descriptor = wgpu::BindGroupLayoutDescriptor { label: None, entries };
            device.create_bind_group_layout(&descriptor)
        };
        let storage = |read_only| wgpu::BufferBindingType::Storage { read_only };
        let memory = layout(&[entry(0, storage(true), false), entry(1, storage(false), false)]);
        let uniform = layout(&[entry(0, wgpu::BufferBindingType::Uniform, true)]);
        let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
            label: None,
            source: wgpu::ShaderSource::Wgsl(source.into()),
        });
        let pipeline_layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label: None,
            bind_group_layouts: &[Some(&memory), Some(&uniform)],
            immediate_size: 0,
        });
        let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: None,
            layout: Some(&pipeline_layout),
            module: &module,
            entry_point: Some(ENTRY),
            compilation_options: wgpu::PipelineCompilationOptions::default(),
            cache: None,
        });
        let groups = [0, 1].map(|first| {
            let entries = [(0, first), (1, 1 - first)].map(|(binding, at)| wgpu::BindGroupEntry {
                binding,
                resource: buffers[at].as_entire_binding(),
            });
            let descriptor =
                wgpu::BindGroupDescriptor { label: None, layout: &memory, entries: &entries };
            device.create_bind_group(&descriptor)
        });
        let stride = device.limits().min_uniform_buffer_offset_alignment;
        let block = device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: u64::from(stride) * (KERNELS as u64 + 1),
            usage: wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        let size = wgpu::BufferSize::new(u64::from(stride));
        let binding = wgpu::BufferBinding { buffer: &block, offset: 0, size };
        let resource = wgpu::BindingResource::Buffer(binding);
        let block_group = device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &uniform,
            entries: &[wgpu::BindGroupEntry { binding: 0, resource }],
        });
        Self { pipeline, groups, block, block_group, stride }
    }

    fn run(&self, device: &wgpu::Device, queue: &wgpu::Queue, round: u32) {
        // As much as the blocks of the chain, whose slots lie in all of them.
        let bytes = [round as u8; 256];
        queue.write_buffer(&self.block, 0, &bytes[..self.stride.min(256) as usize]);
        let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        pass.set_pipeline(&self.pipeline);
        for at in 0..KERNELS {
            pass.set_bind_group(0, &self.groups[at % 2], &[]);
            pass.set_bind_group(1, &self.block_group, &[at as u32 * self.stride]);
            pass.dispatch_workgroups(4, 1, 1);
        }
        drop(pass);
        let submission = queue.submit([encoder.finish()]);
        let poll = wgpu::PollType::Wait { submission_index: Some(submission), timeout: None };
        device.poll(poll).expect("the device answers");
    }
}
