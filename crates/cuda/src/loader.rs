//! Opening the driver library, before anything is called through the bindings.
//!
//! The bindings open libraries on their own at the first call and panic where a library or a function is missing.
//! Here the same library is opened first, by the same names in the same order, and everything that could be missing
//! is looked for: the driver's version, every function in [`symbols`](crate::symbols), a device. What is wrong is a
//! [`LoadError`] that names it.

use std::env;
use std::error::Error;
use std::ffi::{OsString, c_int, c_uint};
use std::fmt;
use std::path::PathBuf;
use std::sync::OnceLock;

use libloading::Library;

use crate::error::Version;
use crate::symbols;

/// The oldest driver that graphs can be built with here: edge data and conditional nodes in their present form.
pub const OLDEST_DRIVER: Version = Version { major: 12, minor: 4 };

/// The oldest driver that this crate is tested with. An older one may work; `phonograph doctor` says so.
pub const TESTED_DRIVER: Version = Version { major: 13, minor: 0 };

/// Why CUDA cannot be used on this machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// No driver library.
    #[error("there is no CUDA driver on this machine: {0}")]
    NoDriver(String),
    /// A driver library that lacks a function.
    #[error(
        "the CUDA driver library {library} has no function {symbol}, so it is too old or a stub; a driver for CUDA {OLDEST_DRIVER} or newer is needed"
    )]
    MissingSymbol {
        /// The library's name.
        library: String,
        /// The function.
        symbol: &'static str,
    },
    /// A driver library without which one feature does not work; the others do.
    #[error("{feature} cannot be had: the CUDA driver library {library} has no function {symbol}")]
    MissingFeature {
        /// The library's name.
        library: String,
        /// The feature.
        feature: Feature,
        /// The function.
        symbol: &'static str,
    },
    /// A driver from before what is needed.
    #[error("the CUDA driver is for CUDA {found}; {OLDEST_DRIVER} or newer is needed")]
    TooOld {
        /// The driver's version.
        found: Version,
    },
    /// The driver does not start.
    #[error("{function} of the CUDA driver {library} answers {code}{}", hint(.code))]
    Refused {
        /// The library's name.
        library: String,
        /// The function.
        function: &'static str,
        /// The driver's number for the error.
        code: u32,
    },
    /// A driver without a device.
    #[error("the CUDA driver works, but there is no CUDA device")]
    NoDevice,
}

/// The numbers that a broken installation answers with.
fn hint(code: &u32) -> &'static str {
    match code {
        34 => " (this is the toolkit's stub, not the driver; take it off the library path)",
        100 => " (no CUDA device)",
        803 => " (the library and the kernel module are of different drivers)",
        804 => " (the driver is too old for this library)",
        _ => "",
    }
}

/// What needs more of the driver than building and replaying graphs does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feature {
    /// Graphs that others made: captured, read, edited.
    Foreign,
    /// What nodes take, by events, where there is no CUPTI.
    Timing,
    /// Recordings of the driver's answers.
    Record,
}

impl Feature {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Foreign, Self::Timing, Self::Record];

    /// What the feature needs of the driver beside what everything does.
    fn symbols(self) -> impl Iterator<Item = &'static str> {
        let lists: &[&[&'static str]] = match self {
            Self::Foreign => &[symbols::FOREIGN],
            Self::Timing => &[symbols::TIMING],
            Self::Record => &[symbols::FOREIGN, symbols::RECORD],
        };
        lists.iter().copied().flatten().copied()
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Foreign => "graphs that others made",
            Self::Timing => "times of nodes by events",
            Self::Record => "recordings of the driver's answers",
        })
    }
}

/// The loaded driver.
#[derive(Debug)]
pub struct Driver {
    library: String,
    version: Version,
    devices: u32,
    /// The first function that a feature needs and the library lacks.
    lacks: Vec<(Feature, &'static str)>,
    /// Held so that it stays loaded; the bindings open it again by its name.
    _handle: Library,
}

impl Driver {
    /// Opens the driver, once for the process. Later calls give the same answer.
    ///
    /// # Errors
    /// [`LoadError`] says what is missing. Nothing here panics.
    pub fn load() -> Result<&'static Driver, LoadError> {
        static DRIVER: OnceLock<Result<Driver, LoadError>> = OnceLock::new();
        let names = || {
            let names = ["cuda", "nvcuda"].into_iter().flat_map(cudarc::get_lib_name_candidates);
            names.map(OsString::from)
        };
        DRIVER.get_or_init(|| probe(names())).as_ref().map_err(Clone::clone)
    }

    /// The name that the library was found by.
    pub fn library(&self) -> &str {
        &self.library
    }

    /// The newest CUDA version that the driver supports.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Whether the library has what a feature needs.
    ///
    /// # Errors
    /// [`LoadError::MissingFeature`] names the first function that is missing.
    pub fn offers(&self, feature: Feature) -> Result<(), LoadError> {
        match self.lacks.iter().find(|(lacking, _)| *lacking == feature) {
            None => Ok(()),
            Some(&(feature, symbol)) => {
                Err(LoadError::MissingFeature { library: self.library.clone(), feature, symbol })
            }
        }
    }

    /// How many devices there are; at least one.
    pub fn devices(&self) -> u32 {
        self.devices
    }
}

/// Opens the first library of these names that exists and looks for what is needed of it.
fn probe(names: impl Iterator<Item = OsString>) -> Result<Driver, LoadError> {
    let (library, handle) = open(names).map_err(LoadError::NoDriver)?;
    let missing = |symbol| LoadError::MissingSymbol { library: library.clone(), symbol };
    let refused = |function, code| LoadError::Refused { library: library.clone(), function, code };
    // The version first: an old driver lacks functions too, and its age is what explains that.
    let mut version: c_int = 0;
    // SAFETY: this is the function's signature in every version of the driver; it needs no initialisation.
    let code = unsafe {
        let get =
            function::<unsafe extern "C" fn(*mut c_int) -> c_uint>(&handle, "cuDriverGetVersion");
        get.ok_or_else(|| missing("cuDriverGetVersion"))?(&mut version)
    };
    if code != 0 {
        return Err(refused("cuDriverGetVersion", code));
    }
    let version = Version::from_driver(version);
    if version < OLDEST_DRIVER {
        return Err(LoadError::TooOld { found: version });
    }
    if let Some(symbol) = lacks(&handle, symbols::DRIVER.iter().copied()) {
        return Err(missing(symbol));
    }
    let lacking = |feature: Feature| Some((feature, lacks(&handle, feature.symbols())?));
    let lacking = Feature::ALL.into_iter().filter_map(lacking).collect();
    // SAFETY: this is the function's signature in every version of the driver, and 0 its only valid argument.
    let code = unsafe {
        let init = function::<unsafe extern "C" fn(c_uint) -> c_uint>(&handle, "cuInit");
        init.ok_or_else(|| missing("cuInit"))?(0)
    };
    match code {
        0 => {}
        100 => return Err(LoadError::NoDevice),
        code => return Err(refused("cuInit", code)),
    }
    let mut devices: c_int = 0;
    // SAFETY: as above; the driver is initialised.
    let code = unsafe {
        let count =
            function::<unsafe extern "C" fn(*mut c_int) -> c_uint>(&handle, "cuDeviceGetCount");
        count.ok_or_else(|| missing("cuDeviceGetCount"))?(&mut devices)
    };
    if code != 0 {
        return Err(refused("cuDeviceGetCount", code));
    }
    match u32::try_from(devices) {
        Ok(devices) if devices > 0 => {
            Ok(Driver { library, version, devices, lacks: lacking, _handle: handle })
        }
        _ => Err(LoadError::NoDevice),
    }
}

/// A library beside the driver, and where it was found.
///
/// Opens it for a moment: under the names that the toolkit and its packages use, on the library path and in the
/// toolkit's folder.
///
/// # Errors
/// What was tried, and what came of it.
///
/// ```
/// match phonograph_cuda::find_library("cublas") {
///     Ok(path) => println!("cuBLAS is {path}"),
///     Err(problem) => println!("no cuBLAS: {problem}"),
/// }
/// ```
pub fn find_library(name: &str) -> Result<String, String> {
    open(library_names(name).into_iter()).map(|(found, _handle)| found)
}

/// What a library beside the driver may be called, best first.
pub(crate) fn library_names(name: &str) -> Vec<OsString> {
    let file = |version: &str| format!("lib{name}.so{version}");
    let mut names: Vec<OsString> = [".13", ".12", ""].map(|v| file(v).into()).to_vec();
    for toolkit in toolkits() {
        for folder in ["lib64", "extras/CUPTI/lib64"] {
            names.push(toolkit.join(folder).join(file("")).into());
        }
    }
    names
}

/// The folders in which a toolkit may lie.
pub(crate) fn toolkits() -> impl Iterator<Item = PathBuf> {
    let named = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(env::var_os);
    named.map(PathBuf::from).chain(["/usr/local/cuda".into()])
}

/// Opens the first library that exists; else says what was tried.
pub(crate) fn open(names: impl Iterator<Item = OsString>) -> Result<(String, Library), String> {
    let mut first_problem = None;
    let mut tried = 0;
    for name in names {
        // SAFETY: opening runs the library's initialisers; these are NVIDIA's libraries, or what the user put in their
        // place.
        match unsafe { Library::new(&name) } {
            Ok(handle) => return Ok((name.to_string_lossy().into_owned(), handle)),
            Err(error) => {
                tried += 1;
                // The loader's own words are the error's source.
                first_problem.get_or_insert_with(|| match error.source() {
                    Some(source) => source.to_string(),
                    None => error.to_string(),
                });
            }
        }
    }
    let first = first_problem.unwrap_or_else(|| "no name to look for".to_owned());
    Err(format!("none of {tried} library names could be opened; the first: {first}"))
}

/// The first of these functions that a library does not have.
pub(crate) fn lacks(
    library: &Library,
    mut wanted: impl Iterator<Item = &'static str>,
) -> Option<&'static str> {
    // SAFETY: the functions are only looked for, not called.
    wanted.find(|symbol| unsafe { function::<*const ()>(library, symbol) }.is_none())
}

/// A function of a library, if it has it.
///
/// # Safety
/// `F` is the function's type, or it is not called.
pub(crate) unsafe fn function<F: Copy>(library: &Library, name: &str) -> Option<F> {
    // SAFETY: the caller's promise. A name that is absent is the error that is looked for.
    unsafe { library.get::<F>(name.as_bytes()) }.map(|symbol| *symbol).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stub::stub;

    /// A stub driver of this version gives this error, or none.
    fn check(version: &str, without: Option<&str>, bodies: &[(&str, &str)], error: &str) {
        let folder = tempfile::tempdir().unwrap();
        let version = format!("(int *v) {{ *v = {version}; return 0; }}");
        let mut all = vec![("cuDriverGetVersion", version.as_str())];
        all.extend(bodies);
        let path = stub(folder.path(), symbols::DRIVER, without, &all);
        let found = probe([path.clone()].into_iter());
        let found = found.err().map_or(String::new(), |error| error.to_string());
        assert_eq!(found.replace(&*path.to_string_lossy(), "LIB"), error);
    }

    const ONE_DEVICE: (&str, &str) = ("cuDeviceGetCount", "(int *n) { *n = 1; return 0; }");

    #[test]
    fn whatever_is_missing_is_an_error_that_names_it() {
        check("13000", None, &[ONE_DEVICE], "");
        check(
            "12030",
            None,
            &[ONE_DEVICE],
            "the CUDA driver is for CUDA 12.3; 12.4 or newer is needed",
        );
        let wanted = symbols::DRIVER;
        for symbol in [wanted[0], wanted[wanted.len() / 2], wanted[wanted.len() - 1]] {
            let error = format!(
                "the CUDA driver library LIB has no function {symbol}, so it is too old or a stub; a driver for CUDA 12.4 or newer is needed"
            );
            check("12040", Some(symbol), &[ONE_DEVICE], &error);
        }
        let none = "the CUDA driver works, but there is no CUDA device";
        check("12040", None, &[("cuDeviceGetCount", "(int *n) { *n = 0; return 0; }")], none);
        check("12040", None, &[("cuInit", "(unsigned f) { return 100; }")], none);
        check(
            "12040",
            None,
            &[("cuInit", "(unsigned f) { return 803; }")],
            "cuInit of the CUDA driver LIB answers 803 (the library and the kernel module are of different drivers)",
        );
    }

    #[test]
    fn what_only_one_feature_needs_is_missed_when_that_is_used() {
        let folder = tempfile::tempdir().unwrap();
        let all = [symbols::DRIVER, symbols::FOREIGN, symbols::TIMING, symbols::RECORD].concat();
        let bodies = [("cuDriverGetVersion", "(int *v) { *v = 13000; return 0; }"), ONE_DEVICE];
        let check = |without: Option<&'static str>, expected: [bool; 3]| {
            let folder = folder.path().join(without.unwrap_or("whole"));
            std::fs::create_dir(&folder).unwrap();
            let path = stub(&folder, &all, without, &bodies);
            let driver = probe([path].into_iter()).unwrap();
            for (feature, expected) in Feature::ALL.into_iter().zip(expected) {
                match driver.offers(feature) {
                    Ok(()) => assert!(expected, "{feature} without {without:?}"),
                    Err(LoadError::MissingFeature { feature: told, symbol, .. }) => {
                        assert_eq!((told, Some(symbol), false), (feature, without, expected));
                    }
                    Err(other) => panic!("{other}"),
                }
            }
        };
        check(None, [true, true, true]);
        check(Some(symbols::FOREIGN[0]), [false, true, false]);
        check(Some(symbols::TIMING[0]), [true, false, true]);
        check(Some(symbols::RECORD[0]), [true, true, false]);
    }

    #[test]
    fn no_library_is_an_error_that_says_what_was_tried() {
        let names = ["/nowhere/libcuda.so", "/nowhere/libcuda.so.1"].map(OsString::from);
        let error = probe(names.into_iter()).unwrap_err().to_string();
        let start = "there is no CUDA driver on this machine: none of 2 library names could be opened; the first: /nowhere/libcuda.so";
        assert!(error.starts_with(start), "{error}");
    }
}
