//! Does a live object already say all that a desired one says?
//!
//! The API server fills in defaults and rewrites quantities, so equality is the wrong question: a pass over an
//! unchanged cluster must not write. An object *covers* a desired one when every value of the desired one stands in
//! it. What the desired object no longer says is not seen here; the digest annotation that `apply` keeps tells that.

use crate::quantity::Quantity;
use serde_json::Value;

/// Whether `live` says all that `desired` says.
pub fn covers(live: &Value, desired: &Value) -> bool {
    within(Some(live), desired, false, "")
}

fn within(live: Option<&Value>, desired: &Value, quantity: bool, key: &str) -> bool {
    match desired {
        Value::Null => true,
        Value::Object(map) => {
            // An empty object is either a choice ("emptyDir: {}") or nothing ("resources: {}").
            let Some(live) = live.and_then(Value::as_object) else {
                return map.values().all(is_nothing) && key != "emptyDir";
            };
            // One label more in a selector, or one file more in a ConfigMap, changes what the object means.
            if matches!(key, "selector" | "matchLabels" | "data") && live.keys().any(|k| !map.contains_key(k))
            {
                return false;
            }
            let quantity = matches!(key, "requests" | "limits" | "capacity");
            map.iter().all(|(k, v)| within(live.get(k), v, quantity, k))
        }
        Value::Array(list) => {
            let Some(live) = live.and_then(Value::as_array) else {
                return list.is_empty();
            };
            if matches!(key, "ownerReferences" | "finalizers") {
                return list
                    .iter()
                    .all(|v| live.iter().any(|l| within(Some(l), v, false, "")));
            }
            live.len() == list.len() && live.iter().zip(list).all(|(l, v)| within(Some(l), v, false, ""))
        }
        Value::String(text) => match live {
            Some(Value::String(found)) if found == text => true,
            Some(Value::String(found)) if quantity || key == "sizeLimit" => same_quantity(found, text),
            Some(Value::Number(found)) if quantity => same_quantity(&found.to_string(), text),
            None => text.is_empty(),
            _ => false,
        },
        Value::Number(number) if quantity => match live {
            Some(Value::String(found)) => same_quantity(found, &number.to_string()),
            other => other == Some(desired),
        },
        Value::Bool(false) => live.is_none_or(|l| l == desired),
        Value::Bool(_) | Value::Number(_) => live == Some(desired),
    }
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.values().all(is_nothing),
        Value::Array(list) => list.is_empty(),
        _ => false,
    }
}

fn same_quantity(a: &str, b: &str) -> bool {
    matches!((Quantity::parse(a), Quantity::parse(b)), (Some(a), Some(b)) if a == b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn server_defaults_are_not_drift() {
        let desired =
            json!({"spec": {"replicas": 2, "paused": false, "extra": {}, "none": null, "list": []}});
        let live = json!({"spec": {"replicas": 2, "strategy": {"type": "RollingUpdate"}}, "status": {}});
        assert!(covers(&live, &desired));
    }

    #[test]
    fn quantities_compare_by_value_where_they_are_quantities() {
        let desired = json!({"requests": {"memory": "1024Mi", "cpu": 1}, "note": "1024Mi"});
        assert!(covers(
            &json!({"requests": {"memory": "1Gi", "cpu": "1"}, "note": "1024Mi"}),
            &desired
        ));
        assert!(!covers(
            &json!({"requests": {"memory": "1Gi", "cpu": "1"}, "note": "1Gi"}),
            &desired
        ));
        assert!(!covers(
            &json!({"requests": {"memory": "2Gi", "cpu": "1"}, "note": "1024Mi"}),
            &desired
        ));
    }

    #[test]
    fn changed_missing_and_added_items_are_drift() {
        let desired = json!({"ports": [{"port": 1}, {"port": 2}], "emptyDir": {}});
        assert!(covers(
            &json!({"ports": [{"port": 1, "nodePort": 7}, {"port": 2}], "emptyDir": {}}),
            &desired
        ));
        assert!(!covers(
            &json!({"ports": [{"port": 1}], "emptyDir": {}}),
            &desired
        ));
        assert!(!covers(
            &json!({"ports": [{"port": 1}, {"port": 3}], "emptyDir": {}}),
            &desired
        ));
        assert!(!covers(
            &json!({"ports": [{"port": 1}, {"port": 2}, {"port": 3}], "emptyDir": {}}),
            &desired
        ));
        assert!(!covers(&json!({"ports": [{"port": 1}, {"port": 2}]}), &desired));
    }

    #[test]
    fn a_selector_holds_nothing_else() {
        let desired = json!({"spec": {"selector": {"a": "1"}}});
        assert!(covers(
            &json!({"spec": {"selector": {"a": "1"}, "x": 1}}),
            &desired
        ));
        assert!(!covers(
            &json!({"spec": {"selector": {"a": "1", "b": "2"}}}),
            &desired
        ));
    }

    #[test]
    fn foreign_owners_may_stand_beside_ours() {
        let desired = json!({"ownerReferences": [{"uid": "a"}]});
        assert!(covers(
            &json!({"ownerReferences": [{"uid": "b"}, {"uid": "a"}]}),
            &desired
        ));
        assert!(!covers(&json!({"ownerReferences": [{"uid": "b"}]}), &desired));
    }
}
