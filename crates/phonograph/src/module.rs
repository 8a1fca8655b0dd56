//! Models as objects: something that maps inputs to outputs, learns, and has parameters.

use crate::Result;
use crate::tensor::Tensor;

/// Something that maps an input to an output, by operations or by launching graphs that it has captured.
///
/// ```
/// use phonograph::prelude::*;
///
/// kernel! { fn double(x: &[f32], y: out [f32]) |e| { y = x * e.f32(2.0); } }
///
/// /// Doubles batches of a fixed size, through a graph.
/// struct Doubler { input: Tensor<f32>, graph: CapturedGraph<()>, output: Tensor<f32> }
///
/// impl Doubler {
///     fn new(stream: &Stream, len: u64) -> Result<Self> {
///         let (input, mut output) = zip!(api::zeros([len]), api::zeros([len])).sync_on(stream)?;
///         let graph = double(&input, &mut output).map(drop).graph_on(stream)?;
///         Ok(Self { input, graph, output })
///     }
/// }
///
/// impl Module for Doubler {
///     type Input = Vec<f32>;
///     type Output = Vec<f32>;
///     fn forward(&mut self, input: Vec<f32>) -> Result<Vec<f32>> {
///         self.graph.update(api::store(input, &mut self.input))?;
///         self.graph.launch().sync_on(self.graph.stream())?;
///         self.output.to_vec()
///     }
/// }
///
/// let device = Device::cpu(1)?;
/// let mut doubler = Doubler::new(&device.stream(0), 3)?;
/// assert_eq!(doubler.forward(vec![1.0, 2.0, 3.0])?, [2.0, 4.0, 6.0]);
/// # Ok::<(), Error>(())
/// ```
pub trait Module {
    /// What it is given.
    type Input: Send;
    /// What it gives.
    type Output: Send;

    /// The output for an input.
    ///
    /// # Errors
    /// Whatever its operations say.
    fn forward(&mut self, input: Self::Input) -> Result<Self::Output>;
}

/// A module whose gradients can be had.
pub trait Backward: Module {
    /// From the gradient of the output of the last [`forward`](Module::forward), computes those of the parameters and gives that
    /// of the input.
    ///
    /// # Errors
    /// Whatever its operations say.
    fn backward(&mut self, gradient: Self::Output) -> Result<Self::Input>;
}

/// A learnable parameter and its gradient.
pub struct Parameter<'m> {
    /// For people, and for whoever saves it.
    pub name: &'m str,
    /// The parameter.
    pub value: &'m mut Tensor<f32>,
    /// Its gradient, of the same shape, as the last backward pass has left it.
    pub gradient: &'m Tensor<f32>,
}

/// Something that has learnable parameters.
pub trait Parameterized {
    /// Its parameters, always in the same order.
    fn parameters(&mut self) -> Vec<Parameter<'_>>;
}
