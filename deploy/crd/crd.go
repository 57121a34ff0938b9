// Package crd carries the generated CustomResourceDefinitions inside binaries.
package crd

import "embed"

// FS holds one YAML file per CustomResourceDefinition. It is a variable because
// embedding needs one; nothing writes to it.
//
//go:embed *.yaml
var FS embed.FS
