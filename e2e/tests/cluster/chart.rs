//! What is installed: the chart's objects, the CRDs and the examples, judged by a real API server, and the operator's
//! knowledge of broker keys, judged by a real broker.

use std::collections::BTreeSet;
use std::process::Command;

use crate::support::{helm, kubectl, root, run};

/// Plain `kubectl apply` keeps a copy of the object in an annotation of at most 256 KiB.
const CRD_LIMIT: u64 = 200 * 1024;

#[test]
fn rendered_objects_and_examples_are_accepted_strictly() {
    let chart = root().join("charts/ferromq");
    let rendered = run(helm().args(["template", "ferromq"]).arg(&chart).args([
        "--namespace",
        "ferromq-system",
        "--skip-crds",
    ]));
    let file = std::env::temp_dir().join(format!("ferromq-chart-{}.yaml", std::process::id()));
    std::fs::write(&file, rendered).expect("write the rendered chart");
    let dry = ["apply", "--dry-run=server", "--validate=strict", "-f"];
    run(kubectl().args(["-n", "ferromq-system"]).args(dry).arg(&file));
    std::fs::remove_file(file).expect("remove the rendered chart");
    run(kubectl().args(dry).arg(root().join("crds")));
    run(kubectl().args(dry).arg(root().join("examples")));
}

#[test]
fn crds_are_small_enough_for_plain_apply() {
    let folder = std::fs::read_dir(root().join("crds")).expect("crds/ is there");
    let sizes: Vec<(std::path::PathBuf, u64)> = folder
        .map(|entry| entry.expect("an entry"))
        .map(|entry| (entry.path(), entry.metadata().expect("its size").len()))
        .collect();
    assert_eq!(sizes.len(), 3, "{sizes:?}");
    assert!(sizes.iter().all(|(_, size)| *size < CRD_LIMIT), "{sizes:?}");
}

#[test]
fn the_operator_knows_every_key_of_the_broker() {
    let program = |name: &str| Command::new(root().join("target/debug").join(name));
    let keys_of = |text: &str| -> BTreeSet<String> {
        text.lines()
            .map(str::trim)
            .filter(|l| !l.starts_with('#'))
            .filter_map(|l| l.split(['=', ' ', '\t']).next())
            .filter(|key| !key.is_empty())
            .map(str::to_owned)
            .collect()
    };
    let broker = keys_of(&run(program("ferromq-broker").arg("-p")));
    let operator = keys_of(&run(program("ferromq-operator").arg("keys")));
    let unknown: Vec<&String> = broker.difference(&operator).collect();
    assert!(
        broker.len() > 100 && unknown.is_empty(),
        "keys that only the broker knows: {unknown:?}"
    );
}
