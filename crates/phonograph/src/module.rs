//! Models as objects: something that maps inputs to outputs, learns, and has parameters.

use crate::Result;
use crate::tensor::Tensor;

/// Something that maps an input to an output, by operations or by launching graphs that it has captured.
///
/// ```
/// use phonograph::prelude::*;
///
/// kernel! { fn double(x: &[f32], y: out [f32]) |_e| { y = 2.0 * x; } }
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
///
/// ```
/// use phonograph::prelude::*;
///
/// kernel! {
///     fn gradient_of(x: &[f32], dy: &[f32], dw: out [f32]) |_e| { dw = x * dy; }
///     fn descend(rate: f32, gradient: &[f32], value: &mut [f32]) |_e| { value = value - rate * gradient; }
/// }
///
/// /// y = w x, one number each.
/// struct Scale { x: Tensor<f32>, w: Tensor<f32>, dw: Tensor<f32>, stream: Stream }
///
/// impl Module for Scale {
///     type Input = f32;
///     type Output = f32;
///     fn forward(&mut self, x: f32) -> Result<f32> {
///         api::store([x], &mut self.x).sync_on(&self.stream)?;
///         Ok(self.w.to_vec()?[0] * x)
///     }
/// }
/// impl Backward for Scale {
///     fn backward(&mut self, dy: f32) -> Result<f32> {
///         let dy = api::full([1], dy).sync_on(&self.stream)?;
///         gradient_of(&self.x, &dy, &mut self.dw).sync_on(&self.stream)?;
///         Ok(dy.to_vec()?[0] * self.w.to_vec()?[0])
///     }
/// }
/// impl Parameterized for Scale {
///     fn parameters(&mut self) -> Vec<Parameter<'_>> {
///         vec![Parameter { name: "w", value: &mut self.w, gradient: &self.dw }]
///     }
/// }
///
/// let device = Device::cpu(1)?;
/// let stream = device.stream(0);
/// let [x, w, dw] = [0.0, 2.0, 0.0].map(|v| api::full([1], v).sync_on(&stream));
/// let mut module = Scale { x: x?, w: w?, dw: dw?, stream: stream.clone() };
/// assert_eq!(module.forward(3.0)?, 6.0);
/// assert_eq!(module.backward(1.0)?, 2.0); // of the input
/// for parameter in module.parameters() {
///     descend(0.5, parameter.gradient, parameter.value).sync_on(&stream)?;
/// }
/// assert_eq!(module.forward(1.0)?, 2.0 - 0.5 * 3.0);
/// # Ok::<(), Error>(())
/// ```
pub trait Parameterized {
    /// Its parameters, always in the same order.
    fn parameters(&mut self) -> Vec<Parameter<'_>>;
}
