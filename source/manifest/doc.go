// Package manifest reads a world from manifests: files, folders or a stream of
// YAML or JSON documents, as kubectl takes them.
//
// Reading is strict. Broken YAML, a duplicate key, an unknown field or kind, or a
// part that cannot be read is an [Error] that names file, document and field;
// nothing of a world that has one is returned.
package manifest
