//! Clusters and end-to-end tests.
