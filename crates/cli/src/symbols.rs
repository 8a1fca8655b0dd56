//! Functions and source lines of native addresses, from the files that were loaded.

use std::collections::HashMap;

use addr2line::Loader;

/// The files that were looked into; none where one is gone or has no symbols.
pub struct Symbols {
    loaders: HashMap<String, Option<Loader>>,
}

/// What is known about an address.
#[derive(Default)]
pub struct Found {
    /// The function's symbol, mangled.
    pub function: Option<String>,
    /// File and line.
    pub line: Option<(String, u32)>,
}

impl Symbols {
    pub fn new() -> Self {
        Self { loaders: HashMap::new() }
    }

    /// What a file says about an address in it.
    pub fn find(&mut self, path: &str, address: u64) -> Found {
        let open = || Loader::new(path).ok();
        let Some(loader) = self.loaders.entry(path.to_owned()).or_insert_with(open) else {
            return Found::default();
        };
        let line = loader.find_location(address).ok().flatten();
        let line = line.and_then(|location| Some((location.file?.to_owned(), location.line?)));
        let symbol = loader.find_symbol(address).map(str::to_owned);
        let debug = || {
            let mut frames = loader.find_frames(address).ok()?;
            let name = frames.next().ok()??.function?;
            Some(name.raw_name().ok()?.into_owned())
        };
        Found { function: symbol.or_else(debug), line }
    }
}
