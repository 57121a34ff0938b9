// Package rpc is what the CNI plugin, which a container runtime runs, asks of the
// agent on its Node over a unix socket. A plugin and an agent of neighbouring
// versions understand each other: what is added is optional.
//
// Source: CNI specification 1.1.
package rpc

// It needs protoc, protoc-gen-go v1.36.11 and protoc-gen-go-grpc v1.6.0.
//go:generate protoc --go_out=. --go_opt=paths=source_relative --go-grpc_out=. --go-grpc_opt=paths=source_relative cni.proto
