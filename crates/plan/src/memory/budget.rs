//! How long a search may take: a number of steps, and whatever the caller's stop function says.

/// A budget of steps. Steps make a result repeatable; whoever wants seconds passes a stop function that looks at a clock.
///
/// ```
/// use phonograph_plan::memory::Budget;
///
/// let mut asked = 0;
/// let mut stop = || { asked += 1; asked > 3 };
/// let mut budget = Budget::new(1_000_000, &mut stop);
/// let mut steps = 0;
/// while budget.step() {
///     steps += 1;
/// }
/// assert!(steps < 1000 && budget.is_spent());
/// ```
pub struct Budget<'a> {
    steps: u64,
    /// Steps until the stop function is asked again.
    until_asked: u64,
    stop: &'a mut dyn FnMut() -> bool,
}

impl<'a> Budget<'a> {
    /// Steps between questions to the stop function.
    const PATIENCE: u64 = 64;

    /// At most `steps` steps (of about a microsecond), fewer if `stop` says so.
    pub fn new(steps: u64, stop: &'a mut dyn FnMut() -> bool) -> Self {
        Self { steps, until_asked: 0, stop }
    }

    /// Takes one step; false if none is left.
    pub fn step(&mut self) -> bool {
        self.spend(1)
    }

    /// Takes many steps at once; false if none is left.
    pub fn spend(&mut self, steps: u64) -> bool {
        if self.steps == 0 {
            return false;
        }
        if self.until_asked == 0 {
            if (self.stop)() {
                self.steps = 0;
                return false;
            }
            self.until_asked = Self::PATIENCE;
        }
        self.until_asked = self.until_asked.saturating_sub(steps);
        self.steps = self.steps.saturating_sub(steps);
        true
    }

    /// A budget of its own, of at most `steps` steps, which are taken from this one.
    pub fn part(&mut self, steps: u64) -> Budget<'_> {
        let steps = steps.min(self.steps);
        self.steps -= steps;
        Budget { steps, until_asked: 0, stop: &mut *self.stop }
    }

    /// How many steps are left.
    pub fn left(&self) -> u64 {
        self.steps
    }

    /// Whether no step is left.
    pub fn is_spent(&self) -> bool {
        self.steps == 0
    }
}
