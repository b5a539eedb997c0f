//! The custom resources: what users write and what the operator answers in `status`.
//!
//! Whatever can be judged from the object alone is refused by the API server when it is applied, by schema or CEL
//! rules written beside the fields. What needs more knowledge (a zone table, the type of a broker key) is judged by
//! `controller::*::validate` and named in a condition. Nothing is ever clamped.

#[allow(unreachable_pub, reason = "KubeSchema repeats the structs inside functions")]
pub mod broker_cluster;
pub mod condition;
#[allow(unreachable_pub, reason = "KubeSchema repeats the structs inside functions")]
pub mod consumer_group;
pub mod rules;
#[allow(unreachable_pub, reason = "KubeSchema repeats the structs inside functions")]
pub mod storage;
#[allow(unreachable_pub, reason = "KubeSchema repeats the structs inside functions")]
pub mod topic;

pub use broker_cluster::{BrokerCluster, BrokerClusterSpec, BrokerClusterStatus};
pub use consumer_group::{ConsumerGroup, ConsumerGroupSpec, ConsumerGroupStatus};
pub use topic::{Topic, TopicSpec, TopicStatus};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use schemars::{JsonSchema, Schema, SchemaGenerator};

/// Every definition, with the file name it has in `crds/`.
pub fn definitions() -> Vec<(&'static str, CustomResourceDefinition)> {
    vec![
        ("ferromq.io_brokerclusters.yaml", BrokerCluster::crd()),
        ("ferromq.io_topics.yaml", Topic::crd()),
        ("ferromq.io_consumergroups.yaml", ConsumerGroup::crd()),
    ]
}

/// One definition as the YAML text that lies in `crds/`.
pub fn to_yaml(crd: &CustomResourceDefinition) -> Result<String, serde_yaml::Error> {
    let body = serde_yaml::to_string(crd)?;
    Ok(format!(
        "# Written by `ferromq-operator crd --dir crds`; do not edit.\n{body}"
    ))
}

/// A list whose items server-side apply tells apart by this field.
fn keyed_list<T: JsonSchema>(generator: &mut SchemaGenerator, key: &str) -> Schema {
    let mut schema = generator.subschema_for::<Vec<T>>();
    schema.insert("x-kubernetes-list-type".to_owned(), "map".into());
    schema.insert("x-kubernetes-list-map-keys".to_owned(), serde_json::json!([key]));
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_in_the_tree_are_what_the_operator_prints() {
        for folder in ["../crds", "../charts/ferromq/crds"] {
            for (file, crd) in definitions() {
                let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
                    .join(folder)
                    .join(file);
                let found = std::fs::read_to_string(&path).unwrap_or_default();
                assert!(
                    found == to_yaml(&crd).unwrap(),
                    "{} is stale: run `make crds`",
                    path.display()
                );
            }
        }
    }

    #[test]
    fn each_definition_fits_the_annotation_of_a_plain_apply() {
        for (file, crd) in definitions() {
            let size = serde_json::to_string(&crd).unwrap().len();
            assert!(size < 200_000, "{file} has {size} bytes");
        }
    }

    #[test]
    fn short_names_and_category_are_fixed() {
        let all = definitions();
        let names: Vec<_> = all.iter().map(|(_, c)| c.spec.names.clone()).collect();
        assert_eq!(names[0].short_names, Some(vec!["mqc".to_owned()]));
        assert_eq!(names[1].short_names, Some(vec!["mqt".to_owned()]));
        assert_eq!(names[2].short_names, Some(vec!["mqg".to_owned()]));
        for n in names {
            assert_eq!(n.categories, Some(vec!["mq".to_owned()]));
        }
    }
}
