//! Tables kept as JSON files under `config/`: a load that falls back to the copy, a save that survives power loss.
//!
//! A save writes `<f>.tmp` and syncs it, keeps the old content as `<f>.bak`, renames `.tmp` over `<f>`, and syncs
//! the directory. At any moment one of `<f>` and `<f>.bak` is whole.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

/// A table can't be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// The system refused.
    #[error("cannot {action} {path}: {source}; look at the file's rights and its disk")]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Neither the file nor its copy makes sense.
    #[error(
        "neither {path} nor its copy .bak can be understood: {reason}; repair one of them, or move both away to start empty"
    )]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

impl TableError {
    /// Whether there was no room on the disk, which may pass.
    pub fn is_disk_full(&self) -> bool {
        matches!(self, Self::Io { source, .. } if crate::fs::crash_safe::is_full(source))
    }
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    PathBuf::from(name)
}

fn read(path: &Path) -> Result<Option<Vec<u8>>, TableError> {
    match fs::read(path) {
        Ok(content) if content.iter().all(u8::is_ascii_whitespace) => Ok(None),
        Ok(content) => Ok(Some(content)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(TableError::Io {
            action: "read",
            path: path.to_owned(),
            source,
        }),
    }
}

/// The content of `path`, or of its `.bak` if that is absent or empty; `None` if both are.
pub fn load(path: &Path) -> Result<Option<Vec<u8>>, TableError> {
    match read(path)? {
        Some(content) => Ok(Some(content)),
        None => read(&beside(path, ".bak")),
    }
}

/// Parses the content of `path`, or of its `.bak` if that is absent, empty or not understood; `None` if both are absent or empty.
pub fn load_with<T, E: ToString>(
    path: &Path,
    parse: impl Fn(&[u8]) -> Result<T, E>,
) -> Result<Option<T>, TableError> {
    let mut reason = None;
    if let Some(content) = read(path)? {
        match parse(&content) {
            Ok(table) => return Ok(Some(table)),
            Err(e) => {
                tracing::warn!(path = %path.display(), error = %e.to_string(), "table not understood, trying its copy");
                reason = Some(e.to_string());
            }
        }
    }
    if let Some(content) = read(&beside(path, ".bak"))? {
        match parse(&content) {
            Ok(table) => return Ok(Some(table)),
            Err(e) => reason = reason.or_else(|| Some(e.to_string())),
        }
    }
    match reason {
        None => Ok(None),
        Some(reason) => Err(TableError::Unreadable {
            path: path.to_owned(),
            reason,
        }),
    }
}

/// Replaces the content of `path` so that power loss leaves the old or the new one, never none.
pub fn save_durably(path: &Path, content: &[u8]) -> Result<(), TableError> {
    let step = |action, at: &Path, r: io::Result<()>| {
        r.map_err(|source| TableError::Io {
            action,
            path: at.to_owned(),
            source,
        })
    };
    let dir = path
        .parent()
        .filter(|d| !d.as_os_str().is_empty())
        .unwrap_or_else(|| Path::new("."));
    step("create", dir, fs::create_dir_all(dir))?;
    let tmp = beside(path, ".tmp");
    let write = |to: &Path, content: &[u8]| -> io::Result<()> {
        let mut file = File::create(to)?;
        file.write_all(content)?;
        file.sync_all()
    };
    step("write", &tmp, write(&tmp, content))?;
    if let Ok(old) = fs::read(path)
        && !old.is_empty()
    {
        let bak = beside(path, ".bak");
        let bak_tmp = beside(path, ".bak.tmp");
        step("write", &bak_tmp, write(&bak_tmp, &old))?;
        step("replace", &bak, fs::rename(&bak_tmp, &bak))?;
    }
    step("replace", path, fs::rename(&tmp, path))?;
    step("sync", dir, File::open(dir).and_then(|d| d.sync_all()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(content: &[u8]) -> Result<i64, String> {
        std::str::from_utf8(content)
            .map_err(|e| e.to_string())?
            .trim()
            .parse::<i64>()
            .map_err(|e| e.to_string())
    }

    #[test]
    fn absent_is_none() {
        let dir = tempfile::tempdir().unwrap();
        assert!(load(&dir.path().join("t.json")).unwrap().is_none());
        assert!(load_with(&dir.path().join("t.json"), parse).unwrap().is_none());
    }

    #[test]
    fn the_copy_stands_in() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config/t.json");
        save_durably(&path, b"1").unwrap();
        save_durably(&path, b"2").unwrap();
        assert_eq!(load_with(&path, parse).unwrap(), Some(2));
        fs::write(&path, b"garbage").unwrap();
        assert_eq!(load_with(&path, parse).unwrap(), Some(1));
        fs::write(&path, b"").unwrap();
        assert_eq!(load(&path).unwrap().unwrap(), b"1");
        fs::write(&path, b"x").unwrap();
        fs::write(dir.path().join("config/t.json.bak"), b"y").unwrap();
        assert!(matches!(
            load_with(&path, parse),
            Err(TableError::Unreadable { .. })
        ));
    }
}
