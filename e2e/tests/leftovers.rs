//! After `make demo-down` nothing of the embedded cluster is left on the machine.

use ferromq_e2e::rig::Paths;

#[test]
fn no_process_mount_link_or_namespace_is_left() {
    let paths = Paths::from_env().expect("the rig's folder");
    let left = ferromq_e2e::rig::leftovers(&paths).expect("look for leftovers");
    assert!(left.is_empty(), "left behind: {left:#?}");
}
