//! A strategic merge of a user's changes into a pod template.
//!
//! Objects are merged field by field, and null takes a field away. Lists whose items have a key in Kubernetes (containers
//! and volumes by name, mounts by path, and so on) are merged item by item; other lists are replaced as a whole.

use serde_json::Value;

/// The field that tells items of a list apart, by the list's name.
fn key_of(list: &str) -> Option<&'static str> {
    Some(match list {
        "containers" | "initContainers" | "volumes" | "env" | "imagePullSecrets" => "name",
        "volumeMounts" => "mountPath",
        "ports" => "containerPort",
        "topologySpreadConstraints" => "topologyKey",
        "hostAliases" => "ip",
        _ => return None,
    })
}

/// Merges `changes` into `base`.
pub(super) fn strategic(base: &mut Value, changes: &Value) {
    merge(base, changes, "");
}

fn merge(base: &mut Value, changes: &Value, name: &str) {
    match (base, changes) {
        (Value::Object(base), Value::Object(changes)) => {
            for (field, change) in changes {
                if change.is_null() {
                    base.remove(field);
                } else if let Some(old) = base.get_mut(field) {
                    merge(old, change, field);
                } else {
                    base.insert(field.clone(), change.clone());
                }
            }
        }
        (Value::Array(base), Value::Array(changes)) if key_of(name).is_some() => {
            let key = key_of(name).unwrap_or_default();
            for change in changes {
                match base.iter_mut().find(|item| item[key] == change[key]) {
                    Some(old) => merge(old, change, ""),
                    None => base.push(change.clone()),
                }
            }
        }
        (base, changes) => *base = changes.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn keyed_lists_are_merged_and_others_replaced() {
        let mut base = json!({"spec": {
            "affinity": {"podAntiAffinity": {"x": 1}},
            "tolerations": [{"key": "a"}],
            "containers": [{"name": "broker", "image": "i", "env": [{"name": "A", "value": "1"}]}],
        }});
        strategic(
            &mut base,
            &json!({"spec": {
                "affinity": null,
                "tolerations": [{"key": "b"}],
                "priorityClassName": "high",
                "containers": [
                    {"name": "broker", "env": [{"name": "A", "value": "2"}, {"name": "B", "value": "3"}]},
                    {"name": "side", "image": "s"},
                ],
            }}),
        );
        assert_eq!(
            base,
            json!({"spec": {
                "tolerations": [{"key": "b"}],
                "priorityClassName": "high",
                "containers": [
                    {"name": "broker", "image": "i", "env": [{"name": "A", "value": "2"}, {"name": "B", "value": "3"}]},
                    {"name": "side", "image": "s"},
                ],
            }})
        );
    }
}
