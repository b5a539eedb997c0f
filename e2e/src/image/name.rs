//! Image names, spelled out the way a container runtime stores them: `ferromq/broker:dev` is kept by containerd and
//! asked for by the kubelet as `docker.io/ferromq/broker:dev`.

use anyhow::{Result, bail, ensure};

/// The full form of an image name: with a registry and a tag.
///
/// # Errors
/// An empty name, a digest, or a character that no image name may hold.
pub fn normalise(name: &str) -> Result<String> {
    ensure!(!name.contains('@'), "image name {name}: give a tag, not a digest");
    let (path, tag) = match name.rsplit_once(':') {
        Some((path, tag)) if !tag.contains('/') => (path, tag),
        _ => (name, "latest"),
    };
    let registry = match path.split_once('/') {
        Some((first, _)) if first.contains('.') || first.contains(':') || first == "localhost" => "",
        Some(_) => "docker.io/",
        None => "docker.io/library/",
    };
    let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-:/".contains(c);
    if path.is_empty() || path.split('/').any(str::is_empty) || !path.chars().all(word) {
        bail!("image name {name}: the part before the tag must be lower-case words joined by /");
    }
    let tag_char = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    ensure!(
        !tag.is_empty() && tag.len() <= 128 && tag.chars().all(tag_char),
        "image name {name}: the tag must be 1 to 128 letters, digits, dots, dashes or underscores"
    );
    Ok(format!("{registry}{path}:{tag}"))
}

#[cfg(test)]
mod tests {
    use super::normalise;

    #[test]
    fn names_get_registry_and_tag() {
        for (given, full) in [
            ("pause", "docker.io/library/pause:latest"),
            ("ferromq/broker:dev", "docker.io/ferromq/broker:dev"),
            ("localhost/a/b:1", "localhost/a/b:1"),
            ("localhost:5000/a", "localhost:5000/a:latest"),
            ("ghcr.io/ferromq/broker:V1.2_x", "ghcr.io/ferromq/broker:V1.2_x"),
        ] {
            assert_eq!(normalise(given).unwrap(), full);
        }
    }

    #[test]
    fn bad_names_are_refused() {
        for bad in ["", ":x", "a//b", "A/b", "a:", "a:b c", "a@sha256:00", "/a"] {
            assert!(normalise(bad).is_err(), "{bad:?}");
        }
    }
}
