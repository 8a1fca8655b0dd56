//! Operations composed of several nodes.
//!
//! The primitives of a graph are elementwise expressions and a few library kernels. Everything bigger is composed
//! here, as several nodes on purpose: planners see the parts and fuse what is worth fusing, on every backend alike.
//!
//! [`Ops`] records on a [`GraphBuilder`](phonograph_graph::GraphBuilder): each call checks shapes, allocates what it
//! needs as internal buffers and adds its nodes. [`expr`] has the elementwise expressions.
//!
//! ```
//! use phonograph_graph::{DType, GraphBuilder, View};
//! use phonograph_kernels::Ops;
//!
//! let mut b = GraphBuilder::new();
//! let x = b.external_buffer("x", 4 * 8 * 16);
//! let x = View::contiguous(x, DType::F32, &[8, 16])?;
//! let p = Ops::new(&mut b).softmax("p", x)?;
//! assert_eq!(p.shape().extents(), &[8, 16]);
//! assert_eq!(b.build()?.node_count(), 5); // max, subtract, exp, sum, divide
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod code;
pub mod cuda;
pub mod expr;
mod nn;
mod ops;
mod optim;
mod random;
mod space;
pub mod wgsl;

pub use nn::{CrossEntropy, LayerNorm, LayerNormGrads, LinearGrads};
pub use ops::{Ops, OpsError};
pub use optim::{Adam, AdamState};
