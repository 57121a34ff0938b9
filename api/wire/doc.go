// Package wire reads and writes protobuf for the generated codecs of api: the
// messages whose Go types are also those of their JSON.
//
// Messages are written backwards into a buffer of their size, so that a length
// is known when it stands in front of what it counts: nothing is allocated but
// that buffer, and nothing is measured twice. Reading follows what clients of
// Kubernetes' own codecs are used to: unknown fields are skipped, a known field of
// another wire type is an error, and what is read is bounded by the bytes there are.
package wire
