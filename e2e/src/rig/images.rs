//! The images that every cluster needs: built from the tools in the cache, without a base.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::paths::{Paths, version};
use crate::image::{Entry, Image};

/// Names of the images, each with its tool's version as tag.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    pub(crate) pause: String,
    pub(crate) busybox: String,
    pub(crate) coredns: String,
    pub(crate) local_path_provisioner: String,
}

impl Names {
    pub(crate) fn current() -> Self {
        let name = |tool: &str, version: &str| format!("localhost/ferromq-rig/{tool}:{version}");
        Self {
            pause: name("pause", version("PAUSE")),
            busybox: name("busybox", "1"),
            coredns: name("coredns", version("COREDNS")),
            local_path_provisioner: name("local-path-provisioner", version("LOCAL_PATH_PROVISIONER")),
        }
    }
}

/// Writes what is missing and returns the archives, the pause image first. Images of the large tools are kept in the
/// cache; the small ones are written into `folder`.
pub(crate) fn archives(paths: &Paths, folder: &Path) -> Result<Vec<PathBuf>> {
    let names = Names::current();
    let pause = folder.join("pause.tar");
    of_program(&names.pause, &paths.tool("pause", "pause"), "/pause")?.write(&pause)?;
    let busybox = folder.join("busybox.tar");
    busybox_image(&names.busybox)?.write(&busybox)?;
    let mut archives = vec![pause, busybox];
    for (tool, name) in [
        ("coredns", &names.coredns),
        ("local-path-provisioner", &names.local_path_provisioner),
    ] {
        let archive = paths.tool(tool, "image-1.tar");
        if !archive.exists() {
            of_program(name, &paths.tool(tool, tool), &format!("/{tool}"))?.write(&archive)?;
        }
        archives.push(archive);
    }
    Ok(archives)
}

fn of_program(name: &str, program: &Path, path: &str) -> Result<Image> {
    let mut image = Image::new(name)?;
    image.add(
        path,
        Entry::File {
            source: program.to_owned(),
            mode: 0o755,
        },
    )?;
    image.run(&[path.to_owned()], &[]);
    Ok(image)
}

/// A shell with the usual small programs, for the provisioner's helper pods and for tests.
fn busybox_image(name: &str) -> Result<Image> {
    let program = ["/bin/busybox", "/usr/bin/busybox"]
        .map(PathBuf::from)
        .into_iter()
        .find(|path| path.exists());
    let program = program.context("no busybox; e2e/rig/setup.sh installs it")?;
    let list = Command::new(&program)
        .arg("--list")
        .output()
        .context("list busybox's programs")?;
    ensure!(list.status.success(), "busybox --list failed");
    let list = String::from_utf8(list.stdout).context("busybox --list")?;
    let mut image = Image::new(name)?;
    for applet in list.lines().filter(|applet| *applet != "busybox") {
        image.add(
            &format!("/bin/{applet}"),
            Entry::Link {
                target: "busybox".into(),
            },
        )?;
    }
    image.add(
        "/bin/busybox",
        Entry::File {
            source: program,
            mode: 0o755,
        },
    )?;
    image.run(&[], &["/bin/sh".to_owned()]);
    Ok(image)
}
