//! Small files that are either old or new after a crash, never half.
//!
//! A save writes `FILE.tmp` and syncs it, makes the old content `FILE.bak`, renames the new one into place and
//! syncs the folder. A load takes `FILE`; when that is missing, empty or not what the caller can read, it
//! takes `FILE.bak`.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn named(what: &str, path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot {what} {}: {error}", path.display()))
}

/// Saves `content`; missing folders are created.
///
/// # Errors
/// The disk is full or the folder not writable; the text names the file. The old content is still there then.
pub fn save(path: &Path, content: &[u8]) -> io::Result<()> {
    let folder = path
        .parent()
        .filter(|p| !p.as_os_str().is_empty())
        .unwrap_or_else(|| Path::new("."));
    fs::create_dir_all(folder).map_err(|e| named("create", folder, &e))?;
    let tmp = beside(path, ".tmp");
    let bak = beside(path, ".bak");
    let write = || {
        let mut file = File::create(&tmp)?;
        file.write_all(content)?;
        file.sync_all()
    };
    write().map_err(|e| named("write", &tmp, &e))?;
    // A link, not a rename: at no moment is the file itself missing.
    match fs::remove_file(&bak) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(named("replace", &bak, &e)),
        _ => {}
    }
    match fs::hard_link(path, &bak) {
        Ok(()) => {}
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        // Some file systems have no links.
        Err(_) => {
            fs::copy(path, &bak).map_err(|e| named("write", &bak, &e))?;
        }
    }
    fs::rename(&tmp, path).map_err(|e| named("replace", path, &e))?;
    File::open(folder)
        .and_then(|f| f.sync_all())
        .map_err(|e| named("sync", folder, &e))
}

/// Loads what `read` understands: the file, else its `.bak`. `Ok(None)` when neither file exists.
///
/// # Errors
/// A file exists but neither it nor the `.bak` can be read; the text names both the file and what is wrong.
pub fn load<T, E: std::fmt::Display>(
    path: &Path,
    read: impl Fn(&[u8]) -> Result<T, E>,
) -> io::Result<Option<T>> {
    let mut first_error = None;
    for (n, candidate) in [path.to_owned(), beside(path, ".bak")].into_iter().enumerate() {
        let got = match fs::read(&candidate) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            Err(e) => Err(named("read", &candidate, &e)),
            Ok(bytes) if bytes.is_empty() => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{} is empty", candidate.display()),
            )),
            Ok(bytes) => read(&bytes).map_err(|e| {
                io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("{} is damaged: {e}", candidate.display()),
                )
            }),
        };
        match got {
            Ok(value) => {
                if n > 0 {
                    tracing::warn!(file = %path.display(), used = %candidate.display(), "took the backup of a file");
                }
                return Ok(Some(value));
            }
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    match first_error {
        None => Ok(None),
        Some(error) => Err(io::Error::new(
            error.kind(),
            format!("{error}, and there is no good backup; repair the file or move it away"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: &[u8]) -> Result<String, String> {
        let text = String::from_utf8(bytes.to_vec()).map_err(|e| e.to_string())?;
        if text.starts_with("good") {
            Ok(text)
        } else {
            Err("not good".to_owned())
        }
    }

    #[test]
    fn saves_in_new_folders_and_keeps_the_old_content() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b/kv.json");
        assert_eq!(load(&path, text).unwrap(), None);
        save(&path, b"good 1").unwrap();
        save(&path, b"good 2").unwrap();
        save(&path, b"good 3").unwrap();
        assert_eq!(load(&path, text).unwrap().as_deref(), Some("good 3"));
        assert_eq!(fs::read(beside(&path, ".bak")).unwrap(), b"good 2");
        assert!(!beside(&path, ".tmp").exists());
    }

    #[test]
    fn a_damaged_or_missing_file_falls_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kv.json");
        save(&path, b"good 1").unwrap();
        save(&path, b"good 2").unwrap();
        for damage in [Some(&b""[..]), Some(b"half"), None] {
            match damage {
                Some(bytes) => fs::write(&path, bytes).unwrap(),
                None => fs::remove_file(&path).unwrap(),
            }
            assert_eq!(
                load(&path, text).unwrap().as_deref(),
                Some("good 1"),
                "{damage:?}"
            );
        }
    }

    #[test]
    fn two_damaged_files_are_an_error_that_names_them() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kv.json");
        fs::write(&path, "bad").unwrap();
        let error = load(&path, text).unwrap_err().to_string();
        assert!(error.contains("kv.json") && error.contains("not good"), "{error}");
    }
}
