//! Reconciles a Topic.
