//! The intermediate representation of GPU task graphs.
//!
//! Everything that produces work (a builder, a capture, an import) produces a [`ComputeGraph`]; everything that
//! consumes work (planners, backends, pictures) takes one, or a plan of one. This crate does no I/O, starts no
//! thread, asks no clock and has no `unsafe`: same input, same bytes out.
//!
//! ```
//! use phonograph_graph::{DType, Expr, GraphBuilder, View, from_json, to_dot, to_json};
//!
//! let mut b = GraphBuilder::new();
//! let x = View::contiguous(b.external_buffer("x", 4096), DType::F32, &[1024])?;
//! let square = View::contiguous(b.alloc_buffer("square", 4096), DType::F32, &[1024])?;
//! let y = View::contiguous(b.external_buffer("y", 4096), DType::F32, &[1024])?;
//! let times = Expr::build(|e| e.output(e.input(DType::F32) * e.input(DType::F32)))?;
//! let half = Expr::build(|e| e.output(0.5 * e.input(DType::F32)))?;
//! let first = b.add_elementwise("square", times.into(), &[x, x], &[], &[square]);
//! let second = b.add_elementwise("halve", half.into(), &[square], &[], &[y]);
//! let graph = b.build()?; // checked; who reads what another writes comes after it
//! assert_eq!(graph.predecessors(second), [first]);
//!
//! let file = to_json(&graph); // for `phonograph run`, `plan`, `show`, …
//! assert_eq!(from_json(file.as_bytes())?, graph);
//! assert!(to_dot(&graph).starts_with("digraph"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`GraphBuilder`] tells of nodes and dependencies, [`json`] and [`dot`] of files. `phonograph_plan` plans a graph's streams and
//! memory as a [`Schedule`], which [`check`] proves; `phonograph_runtime::cpu` replays it.
#![forbid(unsafe_code)]

mod buffer;
mod builder;
mod checker;
mod device_graph;
pub mod dot;
mod dtype;
mod edge;
mod error;
mod expr;
mod expr_builder;
mod fused;
mod graph;
mod ids;
mod infer;
pub mod json;
mod library;
mod names;
mod node;
mod observed;
mod rebuild;
mod region;
mod schedule;
mod topology;
mod validate;
mod view;

pub use buffer::{Buffer, BufferRole, DEFAULT_ALIGN, Slot, Space};
pub use builder::{GraphBuilder, KernelNodeBuilder, MAX_NODES};
pub use checker::{
    Race, RewriteViolation, Seen, StepId, Violation, check, check_rewrite, lost_order, races,
};
pub use device_graph::{DeviceGraph, DeviceNode};
pub use dot::{DotError, MAX_DOT_BYTES, MAX_DOT_EDGES, MAX_DOT_NODES, Place, from_dot, to_dot};
pub use dtype::{DType, ParseScalarError, Scalar};
pub use edge::{Adjacency, Edge, EdgeData, EdgeKind};
pub use error::{CyclePath, GraphError, NamedNode};
pub use expr::{BinaryOp, CompareOp, Expr, ExprError, MAX_EXPR_OPS, Op, UnaryOp, ValueId};
pub use expr_builder::{ExprBuilder, IntoValue, Value};
pub use fused::{FusedKernel, FusedOperands, MAX_FUSED_OPERANDS};
pub use graph::ComputeGraph;
pub use ids::{BufferId, EventId, NodeId, SlotId, StreamId};
pub use json::{
    JsonError, MAX_INFERRED_OPERANDS, MAX_JSON_BYTES, MAX_JSON_NODES, from_json, to_json,
};
pub use library::{LibraryKernel, OperandError, ReduceOp};
pub use names::display_name;
pub use node::{
    Arg, Condition, ConditionalKind, ConditionalNode, Dim3, Extent, HostNode, KernelConfig,
    KernelNode, KernelRef, MemcpyDir, MemcpyNode, MemsetNode, Node, NodeKind, Pitched, Target,
};
pub use observed::Observed;
pub use rebuild::{Image, Rebuild};
pub use region::{Access, Effects, Operands, Region};
pub use schedule::{MAX_STREAMS, MemoryPlan, Schedule, Step};
pub use validate::MAX_NESTING;
pub use view::{MAX_RANK, Shape, View, ViewError};
