//! What most programs import.
//!
//! `use phonograph::prelude::*;`

pub use crate::op::{value, with_context};
pub use crate::{
    Backward, CapturedGraph, Device, DeviceOp, Error, ExecutionContext, GraphLaunch, GraphNode,
    Issue, Module, Parameter, Parameterized, Policy, Result, Scope, Slot, Stream, Tensor,
    TensorView, TensorViewMut, api, compose, host, kernel, repeat_while, when, zip,
};
