//! Compiled code by content: in memory, and on disk between processes.
//!
//! A file holds the whole key (source, options, compiler) before the code, and is used only if that is the key asked for;
//! its name is only where to look. Files are written under another name and renamed, so a reader never sees half of one.

use std::env;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::process;

use crate::nvrtc::{Code, Nvrtc, NvrtcError, Program};

/// First bytes of a file.
const MAGIC: &[u8; 8] = b"phonoCU1";

/// The most that is read from a file.
const MAX_FILE: u64 = 256 << 20;

/// A folder of compiled code.
#[derive(Debug)]
pub struct KernelCache {
    folder: Option<PathBuf>,
}

impl KernelCache {
    /// The user's cache folder: `PHONOGRAPH_CACHE`, or `phonograph/cuda` where programs keep their caches. Without one,
    /// code is compiled anew by each process.
    pub fn of_user() -> Self {
        let own = env::var_os("PHONOGRAPH_CACHE").map(PathBuf::from);
        let caches = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let caches = caches.or_else(|| Some(Path::new(&env::var_os("HOME")?).join(".cache")));
        Self { folder: own.or_else(|| Some(caches?.join("phonograph").join("cuda"))) }
    }

    /// The cubin of a program: from the folder, or compiled and kept there.
    ///
    /// A folder that cannot be read or written costs time and nothing else; the log says so.
    ///
    /// # Errors
    /// Those of [`Nvrtc::compile`].
    pub fn compile(&self, nvrtc: &Nvrtc, program: &Program<'_>) -> Result<Vec<u8>, NvrtcError> {
        let options = program.options(Code::Machine).join(" ");
        let key = format!("NVRTC {}\n{options}\n{}", nvrtc.version(), program.source);
        let Some(folder) = &self.folder else { return nvrtc.compile(program) };
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        let path = folder.join(format!("{:016x}.cubin", hasher.finish()));
        match read(&path, &key) {
            Ok(Some(cubin)) => return Ok(cubin),
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(%error, path = %path.display(), "compiled code cannot be read back")
            }
        }
        let cubin = nvrtc.compile(program)?;
        if let Err(error) = write(&path, &key, &cubin) {
            tracing::warn!(%error, path = %path.display(), "compiled code cannot be kept");
        }
        Ok(cubin)
    }
}

/// The code in a file, if the file exists and is for this key.
fn read(path: &Path, key: &str) -> io::Result<Option<Vec<u8>>> {
    match fs::metadata(path) {
        Ok(found) if found.len() > MAX_FILE => return Ok(None),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    }
    let file = fs::read(path)?;
    let mut head = header(key, 0);
    head.truncate(head.len() - 8);
    let Some(rest) = file.strip_prefix(&head[..]) else { return Ok(None) };
    let Some((length, cubin)) = rest.split_first_chunk::<8>() else { return Ok(None) };
    Ok((u64::from_le_bytes(*length) == cubin.len() as u64).then(|| cubin.to_owned()))
}

fn write(path: &Path, key: &str, cubin: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    // Two threads of one process may compile the same; each writes its own file, and the last rename stays.
    let unique = format!("{}-{:?}", process::id(), std::thread::current().id());
    let unfinished = path.with_extension(unique.replace(|c: char| !c.is_ascii_alphanumeric(), ""));
    let mut file = header(key, cubin.len() as u64);
    file.extend_from_slice(cubin);
    fs::write(&unfinished, file)?;
    fs::rename(&unfinished, path)
}

/// Everything before the code.
fn header(key: &str, length: u64) -> Vec<u8> {
    let mut head = MAGIC.to_vec();
    head.extend((key.len() as u64).to_le_bytes());
    head.extend(key.as_bytes());
    head.extend(length.to_le_bytes());
    head
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_files_of_the_same_key_are_used() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("below").join("x.cubin");
        let code = b"\x7fELF and more".to_vec();
        assert_eq!(read(&path, "key").unwrap(), None);
        write(&path, "key", &code).unwrap();
        assert_eq!(read(&path, "key").unwrap(), Some(code));
        for other in ["kez", "ke", "key2", ""] {
            assert_eq!(read(&path, other).unwrap(), None);
        }
        let whole = fs::read(&path).unwrap();
        for length in 0..whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            assert_eq!(read(&path, "key").unwrap(), None, "{length} bytes");
        }
    }

    #[test]
    fn what_was_compiled_is_found_again() {
        let nvrtc = match Nvrtc::load() {
            Ok(nvrtc) => nvrtc,
            Err(error) => return eprintln!("skipped: {error}"),
        };
        let folder = tempfile::tempdir().unwrap();
        let cache = KernelCache { folder: Some(folder.path().to_owned()) };
        let source = "extern \"C\" __global__ void k(int *p) { *p = 1; }";
        let mut program = Program { name: "test", source, capability: (8, 0) };
        let first = cache.compile(nvrtc, &program).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert_eq!(cache.compile(nvrtc, &program).unwrap(), first);
        program.capability = (9, 0);
        assert_ne!(cache.compile(nvrtc, &program).unwrap(), first);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}
