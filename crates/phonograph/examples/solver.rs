//! Conjugate gradients (Hestenes and Stiefel, 1952) whose loop is part of the graph: one launch goes on to convergence.
//!
//! On the CPU and on CUDA the device decides whether to go on. Through wgpu the launch does so on the host: each iteration is
//! submitted and waited for, and the value that it decides by is read back, a round trip an iteration.
//!
//! `cargo run --release --example solver`, and with `-- --backend wgpu` on a GPU.

mod backend;

use backend::{Backend, Times};
use phonograph::kernels::expr;
use phonograph::prelude::*;

/// Unknowns.
const N: u64 = 96;
/// The square of the residual's norm at which it is done.
const TOLERANCE: f32 = 1e-8;
/// More than it needs; without a limit a system that is not positive definite would never end.
const LIMIT: u32 = 500;

kernel! {
    /// x ← x + a p
    fn advance(a: &[f32], p: &[f32], x: &mut [f32]) |_e| { x = x + a * p; }
    /// r ← r - a q
    fn reduce(a: &[f32], q: &[f32], r: &mut [f32]) |_e| { r = r - a * q; }
    /// p ← r + b p
    fn turn(b: &[f32], r: &[f32], p: &mut [f32]) |_e| { p = r + b * p; }
    /// b ← new / old, and old ← new
    fn ratio(new: &[f32], old: &mut [f32], b: out [f32]) |_e| { b = new / old; old = new; }
    /// Whether to go on, and one try less.
    fn decide(norm: &[f32], left: &mut [u32], more: out [u32]) |e| {
        left = left - 1;
        more = norm.greater(e.f32(TOLERANCE)).select(left, 0);
    }
}

/// A system A x = b and all that the iteration keeps.
struct Solver {
    a: Tensor<f32>,
    x: Tensor<f32>,
    r: Tensor<f32>,
    p: Tensor<f32>,
    q: Tensor<f32>,
    /// r·r of the step before, and now.
    old: Tensor<f32>,
    new: Tensor<f32>,
    /// Coefficients of the step.
    alpha: Tensor<f32>,
    beta: Tensor<f32>,
    left: Tensor<u32>,
    more: Tensor<u32>,
}

impl Solver {
    fn new(stream: &Stream, a: &[f32], b: &[f32]) -> Result<Self> {
        let zeros = |extents: &[u64]| api::zeros::<f32>(extents).sync_on(stream);
        let upload = |extents: &[u64]| api::upload(b, extents).sync_on(stream);
        let square: f32 = b.iter().map(|b| b * b).sum();
        Ok(Self {
            a: api::upload(a, [N, N]).sync_on(stream)?,
            x: zeros(&[N, 1])?,
            r: upload(&[N, 1])?,
            p: upload(&[N, 1])?,
            q: zeros(&[N, 1])?,
            old: api::full([1], square).sync_on(stream)?,
            new: zeros(&[1])?,
            alpha: zeros(&[1])?,
            beta: zeros(&[1])?,
            left: api::full([1], LIMIT).sync_on(stream)?,
            more: api::full([1], 1u32).sync_on(stream)?,
        })
    }

    /// One iteration, on a stream or into a scope.
    fn iterate(&mut self, to: &impl Issue, more: &mut Tensor<u32>) -> Result<()> {
        let Self { a, x, r, p, q, old, new, alpha, beta, left, .. } = self;
        to.issue(api::matmul(&*a, &*p, &mut *q))?;
        to.issue(compose("alpha", (&*p, &*q, &*old, &mut *alpha), |ops, [p, q, old, alpha]| {
            let products = ops.multiply("pq", p, q)?;
            let sum = ops.sum("p·q", products, 0)?;
            ops.map_into("alpha", expr::binary(|_, r, s| r / s), &[old, sum], &[], &[alpha])
                .map(drop)
        }))?;
        to.issue(advance(&*alpha, &*p, x))?;
        to.issue(reduce(&*alpha, &*q, &mut *r))?;
        to.issue(compose("norm", (&*r, &mut *new), |ops, [r, new]| {
            let squares = ops.multiply("rr", r, r)?;
            let sum = ops.sum("r·r", squares, 0)?;
            ops.map_into("norm", expr::identity(sum.dtype), &[sum], &[], &[new]).map(drop)
        }))?;
        to.issue(ratio(&*new, old, &mut *beta))?;
        to.issue(turn(&*beta, &*r, p))?;
        to.issue(decide(&*new, left, more)).map(drop)
    }

    /// Iterates from the host, which looks at the device after every step.
    fn eager(&mut self, stream: &Stream) -> Result<()> {
        let mut more = std::mem::replace(&mut self.more, api::full([1], 1u32).sync_on(stream)?);
        while more.to_vec()? != [0] {
            self.iterate(stream, &mut more)?;
        }
        Ok(())
    }

    /// The whole iteration as a graph of one node.
    fn graph(&mut self, stream: &Stream) -> Result<CapturedGraph<()>> {
        let mut more = std::mem::replace(&mut self.more, api::full([1], 1u32).sync_on(stream)?);
        CapturedGraph::scope(stream, |s| {
            s.record(repeat_while(&mut more, |s, more| self.iterate(s, more)))
        })
    }

    fn iterations(&self) -> Result<u32> {
        Ok(LIMIT - self.left.to_vec()?[0])
    }
}

/// The Laplacian of a row of points, with a mass that makes it well conditioned, and a load.
fn system() -> (Vec<f32>, Vec<f32>) {
    let n = N as usize;
    let mut a = vec![0.0; n * n];
    for row in 0..n {
        a[row * n + row] = 2.25;
        if row > 0 {
            a[row * n + row - 1] = -1.0;
        }
        if row + 1 < n {
            a[row * n + row + 1] = -1.0;
        }
    }
    let b = (0..n).map(|row| (row as f32 * 0.37).sin()).collect();
    (a, b)
}

/// The largest residual of the solution, computed on the host in double precision.
fn residual(a: &[f32], b: &[f32], x: &[f32]) -> f64 {
    let rows = a.chunks(x.len()).zip(b);
    let errors = rows.map(|(row, b)| {
        let product: f64 = row.iter().zip(x).map(|(a, x)| f64::from(*a) * f64::from(*x)).sum();
        (product - f64::from(*b)).abs()
    });
    errors.fold(0.0, f64::max)
}

struct Outcome {
    x: Vec<f32>,
    iterations: u32,
    residual: f64,
}

fn outcome(solver: &Solver, a: &[f32], b: &[f32]) -> Result<Outcome> {
    let x = solver.x.to_vec()?;
    let residual = residual(a, b, &x);
    Ok(Outcome { x, iterations: solver.iterations()?, residual })
}

/// Solves eagerly, then with one launch.
fn solve(device: &Device, times: &mut Times) -> Result<(Outcome, Outcome)> {
    let stream = device.stream(0);
    let (a, b) = system();
    let mut solver = Solver::new(&stream, &a, &b)?;
    times.eagerly(|| solver.eager(&stream))?;
    let eager = outcome(&solver, &a, &b)?;

    let mut solver = Solver::new(&stream, &a, &b)?;
    let graph = solver.graph(&stream)?;
    times.replayed(|| graph.launch().sync_on(&stream))?;
    Ok((eager, outcome(&solver, &a, &b)?))
}

fn main() -> Result<()> {
    let (device, mut times) = (Backend::asked_for().open(2)?, Times::new());
    let (eager, replay) = solve(&device, &mut times)?;
    for _ in 0..4 {
        solve(&device, &mut times)?;
    }
    for (how, outcome) in [("eager", &eager), ("one launch", &replay)] {
        let Outcome { iterations, residual, .. } = outcome;
        println!("{how}: {iterations} iterations, residual {residual:.1e}");
    }
    println!("the solutions are {}the same bits", if eager.x == replay.x { "" } else { "not " });
    times.tell("a solution", 1);
    Ok(())
}

/// Both ways to solve take the same steps, and end where they should.
#[cfg(test)]
fn check(eager: &Outcome, replay: &Outcome) {
    assert_eq!((eager.iterations, &eager.x), (replay.iterations, &replay.x));
    assert!((5..LIMIT).contains(&replay.iterations), "{}", replay.iterations);
    // The recurrence says that the residual's norm is below 1e-4; what it has drifted from the true one is rounding, of
    // 2^-24 for each of the iterations and each of the three terms of a row, relative to values of at most 8.
    let drift = 8.0 * 3.0 * f64::from(replay.iterations) * 2f64.powi(-24);
    assert!(replay.residual < 1e-4 + drift, "{}", replay.residual);
}

#[test]
fn one_launch_goes_on_to_convergence_and_gives_the_same_bits() -> Result<()> {
    let (eager, replay) = solve(&Device::cpu(2)?, &mut Times::new())?;
    check(&eager, &replay);
    Ok(())
}

#[test]
fn other_devices_converge_to_the_same_solution() -> Result<()> {
    let (_, expected) = solve(&Device::cpu(2)?, &mut Times::new())?;
    for device in backend::others() {
        let (eager, replay) = solve(&device, &mut Times::new())?;
        check(&eager, &replay);
        // No eigenvalue of the matrix is below 1/4, so a solution is within four times its residual's norm of the exact one.
        let within = 4.0 * (N as f64).sqrt() * (replay.residual + expected.residual);
        for (at, (found, expected)) in replay.x.iter().zip(&expected.x).enumerate() {
            let off = (f64::from(*found) - f64::from(*expected)).abs();
            assert!(off <= within, "unknown {at}: {found}, not {expected}");
        }
    }
    Ok(())
}
