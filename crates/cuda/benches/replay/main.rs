//! Graphs through the backend and through the driver alone, side by side in one run. Without a device it says so and
//! measures nothing. Medians, unless said. `-- NAME…` prints only these tables:
//!
//! - *launch*: the call that issues a replay, ours and the driver's of the same executable, in turn; and the replay from the
//!   call to the end of the work, of our graph and of the captured one.
//! - *build*: from nothing to an uploaded executable: ours from a graph, the driver's captured from a stream and made node by
//!   node; and ours where there was a graph like it before, with the same parameters and with others in every node.
//! - *slots*: 100 slots set, then a replay of 1000 nodes, over a replay alone; of kernels that read the parameter block,
//!   and of kernels by name, whose nodes' parameters the driver changes.
//! - *weak*: a chain of 1000 generated kernels with programmatic edges, and the same launches captured.
//! - *elementwise*: eight operations as one kernel, by hand, and one by one.
//! - *library*: matrix products by cuBLAS and by generated kernels; sums of everything.
//! - *pool*: two instances on two streams.
//! - *wide*: many kernels side by side, ours and the driver's of the same nodes and edges.

mod build;
mod elementwise;
mod launch;
mod library;
mod pool;
mod raw;
mod slots;
mod weak;
mod wide;

use phonograph_cuda::Cuda;

const EMPTY: &str = "extern \"C\" __global__ void empty() {}";

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn main() -> Outcome {
    let mut cuda = match Cuda::new() {
        Ok(cuda) => cuda,
        Err(error) => {
            println!("skipped: {error}");
            return Ok(());
        }
    };
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|wanted| wanted == name);
    let empty = cuda.compile(EMPTY, "empty")?;
    println!("{}", cuda.devices()[0].name());
    if is_wanted("slots") {
        slots::table(&mut cuda)?;
    }
    if is_wanted("weak") {
        weak::table(&mut cuda)?;
    }
    if is_wanted("elementwise") {
        elementwise::table(&mut cuda)?;
    }
    if is_wanted("library") {
        library::products(&mut cuda)?;
        library::sums(&mut cuda)?;
    }
    if is_wanted("pool") {
        pool::table(&mut cuda)?;
    }
    if is_wanted("build") {
        build::table(&mut cuda, &empty)?;
    }
    if is_wanted("launch") {
        launch::table(&mut cuda, &empty)?;
    }
    // Last: the driver keeps the streams that it takes for such graphs.
    if is_wanted("wide") {
        wide::table(&mut cuda, &empty)?;
    }
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Microseconds of a call.
fn micros(call: impl FnOnce() -> Outcome) -> Result<f64, Box<dyn std::error::Error>> {
    let start = std::time::Instant::now();
    call()?;
    Ok(start.elapsed().as_nanos() as f64 / 1e3)
}
