//! Container images written without a container engine: one layer of files over nothing.
//!
//! The archive is an OCI image layout that `docker load`, `podman load`, `kind load image-archive` and
//! `ctr images import` all take:
//! ```text
//! oci-layout                 {"imageLayoutVersion":"1.0.0"}
//! index.json                 names the manifest's digest and the image's name
//! manifest.json              the same for older docker: Config, RepoTags, Layers
//! blobs/sha256/<layer>       an uncompressed tar of the files
//! blobs/sha256/<config>      user, entry point, environment, the layer's digest
//! blobs/sha256/<manifest>    names config and layer
//! ```
//! Equal inputs give equal bytes: entries are sorted, every time is the epoch and every owner is root, and nothing
//! of the machine gets in.

mod elf;
mod name;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;
use sha2::{Digest, Sha256};

pub use elf::interpreter;
pub use name::normalise;

/// What a path of the image holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A copy of a file of this machine.
    File {
        /// The file to copy; links are followed.
        source: PathBuf,
        /// Permission bits in the image.
        mode: u32,
    },
    /// A file with these bytes.
    Text {
        /// The content.
        content: String,
        /// Permission bits in the image.
        mode: u32,
    },
    /// A folder; parents of other entries need not be named.
    Folder {
        /// Permission bits in the image.
        mode: u32,
    },
    /// A symbolic link to this target.
    Link {
        /// The target as written into the link.
        target: String,
    },
}

/// An image to be written.
#[derive(Debug, Clone, Default)]
pub struct Image {
    tag: String,
    entries: BTreeMap<String, Entry>,
    user: String,
    entrypoint: Vec<String>,
    cmd: Vec<String>,
    env: Vec<String>,
    labels: BTreeMap<String, String>,
    working_dir: String,
    allow_dynamic: bool,
}

/// What [`Image::write`] made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// The image's full name.
    pub tag: String,
    /// Digest of the image's config, in hexadecimal: what container engines call the image id.
    pub id: String,
    /// Bytes of the layer.
    pub layer_bytes: u64,
}

impl Image {
    /// An image with this name (see [`normalise`]) that holds a `/tmp`, the users root and 65532, and nothing else.
    ///
    /// # Errors
    /// The name is not an image name.
    pub fn new(tag: &str) -> Result<Self> {
        let mut image = Self {
            tag: normalise(tag)?,
            ..Self::default()
        };
        image.env(
            "PATH",
            "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        );
        image.add("/tmp", Entry::Folder { mode: 0o1777 })?;
        let passwd = "root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n";
        image.add(
            "/etc/passwd",
            Entry::Text {
                content: passwd.into(),
                mode: 0o644,
            },
        )?;
        let group = "root:x:0:\nnonroot:x:65532:\n";
        image.add(
            "/etc/group",
            Entry::Text {
                content: group.into(),
                mode: 0o644,
            },
        )?;
        Ok(image)
    }

    /// Puts an entry at an absolute path; a later entry replaces an earlier one.
    ///
    /// # Errors
    /// The path is not absolute and plain.
    pub fn add(&mut self, path: &str, entry: Entry) -> Result<&mut Self> {
        let inner = path.strip_prefix('/').unwrap_or_default();
        ensure!(
            !inner.is_empty()
                && inner
                    .split('/')
                    .all(|part| !part.is_empty() && part != "." && part != ".."),
            "path {path:?} in the image must be absolute, without . or .. and not end in /"
        );
        self.entries.insert(inner.to_owned(), entry);
        Ok(self)
    }

    /// The user, `UID`, `UID:GID` or a name of the image's own `/etc/passwd`; root when unset.
    pub fn user(&mut self, user: &str) -> &mut Self {
        user.clone_into(&mut self.user);
        self
    }

    /// Program and first arguments of a container, and the arguments that a pod's `args` replace.
    pub fn run(&mut self, entrypoint: &[String], cmd: &[String]) -> &mut Self {
        self.entrypoint = entrypoint.to_vec();
        self.cmd = cmd.to_vec();
        self
    }

    /// Sets an environment variable.
    pub fn env(&mut self, key: &str, value: &str) -> &mut Self {
        let start = format!("{key}=");
        self.env.retain(|pair| !pair.starts_with(&start));
        self.env.push(start + value);
        self
    }

    /// Sets a label.
    pub fn label(&mut self, key: &str, value: &str) -> &mut Self {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    /// The folder in which the entry point starts; `/` when unset.
    pub fn working_dir(&mut self, folder: &str) -> &mut Self {
        folder.clone_into(&mut self.working_dir);
        self
    }

    /// Takes programs that need a dynamic loader; the caller adds loader and libraries.
    pub fn allow_dynamic(&mut self, allow: bool) -> &mut Self {
        self.allow_dynamic = allow;
        self
    }

    /// Writes the archive, which appears at `out` only when it is whole.
    ///
    /// # Errors
    /// A source cannot be read, is dynamically linked (unless allowed), or the archive cannot be written.
    pub fn write(&self, out: &Path) -> Result<Written> {
        let partial = partial_path(out);
        let layer_path = partial.with_extension("layer");
        let result = self.write_to(&partial, &layer_path);
        let tidy = std::fs::remove_file(&layer_path);
        let written = match result {
            Ok(written) => written,
            Err(error) => {
                // The first failure is the one worth telling.
                std::fs::remove_file(&partial).ok();
                return Err(error.context(format!("write image {} to {}", self.tag, out.display())));
            }
        };
        tidy.with_context(|| format!("remove {}", layer_path.display()))?;
        std::fs::rename(&partial, out)
            .with_context(|| format!("rename {} to {}", partial.display(), out.display()))?;
        Ok(written)
    }

    fn write_to(&self, archive_path: &Path, layer_path: &Path) -> Result<Written> {
        let layer_file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(layer_path);
        let layer_file = layer_file.with_context(|| format!("create {}", layer_path.display()))?;
        let hashed = self.write_layer(Hashed::new(BufWriter::new(layer_file)))?;
        let (layer_digest, layer_bytes, writer) = hashed.finish();
        let mut layer_file = writer.into_inner().context("flush the layer")?;
        layer_file
            .seek(SeekFrom::Start(0))
            .context("read the layer again")?;

        let config = self.config(&layer_digest);
        let config_digest = sha256(&config);
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": {
                "mediaType": "application/vnd.oci.image.config.v1+json",
                "digest": format!("sha256:{config_digest}"),
                "size": config.len(),
            },
            "layers": [{
                "mediaType": "application/vnd.oci.image.layer.v1.tar",
                "digest": format!("sha256:{layer_digest}"),
                "size": layer_bytes,
            }],
        })
        .to_string();
        let manifest_digest = sha256(&manifest);
        let index = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": [{
                "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "digest": format!("sha256:{manifest_digest}"),
                "size": manifest.len(),
                "platform": {"architecture": architecture(), "os": "linux"},
                "annotations": {
                    "io.containerd.image.name": self.tag,
                    "org.opencontainers.image.ref.name": self.tag,
                },
            }],
        })
        .to_string();
        let for_docker = json!([{
            "Config": format!("blobs/sha256/{config_digest}"),
            "RepoTags": [self.tag],
            "Layers": [format!("blobs/sha256/{layer_digest}")],
        }])
        .to_string();

        let file =
            File::create(archive_path).with_context(|| format!("create {}", archive_path.display()))?;
        let mut archive = tar::Builder::new(BufWriter::with_capacity(1 << 20, file));
        let layout = r#"{"imageLayoutVersion":"1.0.0"}"#;
        append_bytes(&mut archive, "oci-layout", layout.as_bytes(), 0o644)?;
        append_bytes(&mut archive, "index.json", index.as_bytes(), 0o644)?;
        append_bytes(&mut archive, "manifest.json", for_docker.as_bytes(), 0o644)?;
        append_bytes(
            &mut archive,
            &format!("blobs/sha256/{config_digest}"),
            config.as_bytes(),
            0o644,
        )?;
        append_bytes(
            &mut archive,
            &format!("blobs/sha256/{manifest_digest}"),
            manifest.as_bytes(),
            0o644,
        )?;
        let mut header = header(tar::EntryType::Regular, 0o644, layer_bytes);
        archive
            .append_data(
                &mut header,
                format!("blobs/sha256/{layer_digest}"),
                BufReader::with_capacity(1 << 20, layer_file),
            )
            .context("copy the layer")?;
        let file = archive
            .into_inner()
            .and_then(|writer| writer.into_inner().map_err(Into::into));
        file.context("finish the archive")?;
        Ok(Written {
            tag: self.tag.clone(),
            id: config_digest,
            layer_bytes,
        })
    }

    fn write_layer<W: Write>(&self, out: W) -> Result<W> {
        let mut layer = tar::Builder::new(out);
        for (path, entry) in self.with_parents() {
            let action = || format!("add /{path}");
            match entry {
                Entry::Folder { mode } => {
                    let mut header = header(tar::EntryType::Directory, mode, 0);
                    layer
                        .append_data(&mut header, format!("{path}/"), &b""[..])
                        .with_context(action)?;
                }
                Entry::Link { target } => {
                    let mut header = header(tar::EntryType::Symlink, 0o777, 0);
                    layer
                        .append_link(&mut header, &path, &target)
                        .with_context(action)?;
                }
                Entry::Text { content, mode } => {
                    append_bytes(&mut layer, &path, content.as_bytes(), mode)?;
                }
                Entry::File { source, mode } => {
                    let bytes =
                        std::fs::read(&source).with_context(|| format!("read {}", source.display()))?;
                    if let (false, Some(loader)) = (self.allow_dynamic, interpreter(&bytes)) {
                        bail!(
                            "{} is linked dynamically and needs {loader}, which this image lacks: build it static \
                             (-C target-feature=+crt-static), or add the loader and libraries and allow it",
                            source.display()
                        );
                    }
                    append_bytes(&mut layer, &path, &bytes, mode)?;
                }
            }
        }
        layer.into_inner().context("finish the layer")
    }

    /// The entries and the folders that they lie in, parents first.
    fn with_parents(&self) -> BTreeMap<String, Entry> {
        let mut all = self.entries.clone();
        for path in self.entries.keys() {
            for (end, _) in path.match_indices('/') {
                all.entry(path[..end].to_owned())
                    .or_insert(Entry::Folder { mode: 0o755 });
            }
        }
        all
    }

    fn config(&self, layer_digest: &str) -> String {
        let mut run = json!({"Env": self.env});
        if !self.user.is_empty() {
            run["User"] = json!(self.user);
        }
        if !self.entrypoint.is_empty() {
            run["Entrypoint"] = json!(self.entrypoint);
        }
        if !self.cmd.is_empty() {
            run["Cmd"] = json!(self.cmd);
        }
        if !self.labels.is_empty() {
            run["Labels"] = json!(self.labels);
        }
        if !self.working_dir.is_empty() {
            run["WorkingDir"] = json!(self.working_dir);
        }
        json!({
            "created": "1970-01-01T00:00:00Z",
            "architecture": architecture(),
            "os": "linux",
            "config": run,
            "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{layer_digest}")]},
            "history": [{"created": "1970-01-01T00:00:00Z", "created_by": "rig image"}],
        })
        .to_string()
    }
}

/// A file name of its own beside `out`, so that two writers do not meet.
fn partial_path(out: &Path) -> PathBuf {
    let mut name = out.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}.partial", std::process::id()));
    out.with_file_name(name)
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn header(kind: tar::EntryType, mode: u32, size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}

fn append_bytes<W: Write>(archive: &mut tar::Builder<W>, path: &str, bytes: &[u8], mode: u32) -> Result<()> {
    let mut header = header(tar::EntryType::Regular, mode, bytes.len() as u64);
    archive
        .append_data(&mut header, path, bytes)
        .with_context(|| format!("add {path}"))
}

fn sha256(text: &str) -> String {
    hexadecimal(&Sha256::digest(text.as_bytes()))
}

/// Lower-case hexadecimal digits of some bytes.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        write!(text, "{byte:02x}").expect("a String takes every write");
    }
    text
}

/// A writer that counts and digests what passes through.
struct Hashed<W> {
    inner: W,
    digest: Sha256,
    bytes: u64,
}

impl<W: Write> Hashed<W> {
    fn new(inner: W) -> Self {
        Self {
            inner,
            digest: Sha256::new(),
            bytes: 0,
        }
    }

    fn finish(self) -> (String, u64, W) {
        (hexadecimal(&self.digest.finalize()), self.bytes, self.inner)
    }
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.inner.write_all(bytes)?;
        self.digest.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.inner.flush()
    }
}

/// The names of the images in an archive, from its `manifest.json` or `index.json`.
///
/// # Errors
/// The file cannot be read or is no image archive.
pub fn names_in(archive: &Path) -> Result<Vec<String>> {
    let file = File::open(archive).with_context(|| format!("open image archive {}", archive.display()))?;
    let mut tags = Vec::new();
    let mut known = false;
    let mut tar = tar::Archive::new(BufReader::new(file));
    for entry in tar
        .entries_with_seek()
        .with_context(|| format!("read image archive {}", archive.display()))?
    {
        let mut entry = entry.with_context(|| format!("{} is no tar archive", archive.display()))?;
        let path = entry.path().context("entry name")?.into_owned();
        let index = path == Path::new("index.json");
        if !index && path != Path::new("manifest.json") {
            continue;
        }
        known = true;
        let mut text = String::new();
        entry
            .read_to_string(&mut text)
            .with_context(|| format!("read {} in the archive", path.display()))?;
        let value: serde_json::Value =
            serde_json::from_str(&text).with_context(|| format!("{} in the archive", path.display()))?;
        let found: Vec<&str> = if index {
            let manifests = value["manifests"].as_array().into_iter().flatten();
            manifests
                .filter_map(|m| m["annotations"]["io.containerd.image.name"].as_str())
                .collect()
        } else {
            let images = value.as_array().into_iter().flatten();
            images
                .flat_map(|image| image["RepoTags"].as_array().into_iter().flatten())
                .filter_map(|t| t.as_str())
                .collect()
        };
        for tag in found {
            if !tags.iter().any(|known| known == tag) {
                tags.push(tag.to_owned());
            }
        }
    }
    ensure!(
        known,
        "{} holds neither manifest.json nor index.json: not an image archive",
        archive.display()
    );
    Ok(tags)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(folder: &Path) -> Image {
        let program = folder.join("program");
        std::fs::write(&program, b"#!/bin/true\n").unwrap();
        let mut image = Image::new("ferromq/sample:1").unwrap();
        image
            .add(
                "/usr/local/bin/program",
                Entry::File {
                    source: program,
                    mode: 0o755,
                },
            )
            .unwrap();
        image
            .add(
                "/bin",
                Entry::Link {
                    target: "usr/local/bin".into(),
                },
            )
            .unwrap();
        image
            .user("65532:65532")
            .run(&["/usr/local/bin/program".into()], &["-x".into()])
            .env("A", "b");
        image
    }

    fn files(archive: impl Read) -> BTreeMap<String, Vec<u8>> {
        let mut all = BTreeMap::new();
        for entry in tar::Archive::new(archive).entries().unwrap() {
            let mut entry = entry.unwrap();
            assert_eq!(entry.header().mtime().unwrap(), 0);
            assert_eq!(entry.header().uid().unwrap(), 0);
            let path = entry.path().unwrap().display().to_string();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            all.insert(path, content);
        }
        all
    }

    #[test]
    fn archive_is_a_layout_whose_digests_hold() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("sample.tar");
        let written = sample(folder.path()).write(&out).unwrap();
        assert_eq!(written.tag, "docker.io/ferromq/sample:1");
        let archive = files(File::open(&out).unwrap());
        for (path, content) in &archive {
            if let Some(digest) = path.strip_prefix("blobs/sha256/") {
                assert_eq!(hexadecimal(&Sha256::digest(content)), digest);
            }
        }
        let json = |path: &str| -> serde_json::Value { serde_json::from_slice(&archive[path]).unwrap() };
        let blob = |digest: &serde_json::Value| digest.as_str().unwrap().replace("sha256:", "blobs/sha256/");
        let index = json("index.json");
        let manifest = json(&blob(&index["manifests"][0]["digest"]));
        let config = json(&blob(&manifest["config"]["digest"]));
        assert_eq!(config["config"]["User"], "65532:65532");
        assert_eq!(config["config"]["Entrypoint"], json!(["/usr/local/bin/program"]));
        assert_eq!(config["rootfs"]["diff_ids"][0], manifest["layers"][0]["digest"]);
        assert_eq!(
            json("manifest.json")[0]["Layers"][0],
            json!(blob(&manifest["layers"][0]["digest"]))
        );
        let layer = files(&archive[&blob(&manifest["layers"][0]["digest"])][..]);
        let names: Vec<_> = layer.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            [
                "bin",
                "etc/",
                "etc/group",
                "etc/passwd",
                "tmp/",
                "usr/",
                "usr/local/",
                "usr/local/bin/",
                "usr/local/bin/program"
            ]
        );
        assert_eq!(names_in(&out).unwrap(), ["docker.io/ferromq/sample:1"]);
    }

    #[test]
    fn equal_inputs_give_equal_bytes_and_no_litter() {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (folder.path().join("a.tar"), folder.path().join("b.tar"));
        sample(folder.path()).write(&a).unwrap();
        sample(folder.path()).write(&b).unwrap();
        assert_eq!(std::fs::read(a).unwrap(), std::fs::read(b).unwrap());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3);
    }

    #[test]
    fn a_missing_source_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let mut image = Image::new("x").unwrap();
        image
            .add(
                "/p",
                Entry::File {
                    source: folder.path().join("absent"),
                    mode: 0o755,
                },
            )
            .unwrap();
        let error = image.write(&folder.path().join("x.tar")).unwrap_err();
        assert!(format!("{error:#}").contains("absent"), "{error:#}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn paths_must_be_absolute_and_plain() {
        let mut image = Image::new("x").unwrap();
        for bad in ["", "/", "a", "/a/", "/a//b", "/../a", "/./a"] {
            assert!(image.add(bad, Entry::Folder { mode: 0o755 }).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn other_files_are_no_image_archives() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        std::fs::write(&path, b"not a tar").unwrap();
        assert!(names_in(&path).is_err());
    }
}
