// Package console answers views: what a user of the console sees of the world, in JSON.
//
// A [Source] has the world, which the loops of a controller know, or a [Fixed] one.
// A [Viewer] is who asks. Whoever may list the objects that a row is made of sees the
// row; nobody else is told of it, by whatever view: not by its name, its labels, its addresses,
// its policies, or an error.
//
// What is computed of the whole world is shared by all viewers. What is
// left out for one of them is left out anew for each request.
package console

//go:generate go tool -modfile=../../tools/go.mod openapi-gen --go-header-file=/dev/null --report-filename=/dev/null --output-pkg=isobar.dev/control/console --output-dir=. --output-file=zz_generated.openapi.go isobar.dev/api/console/v1alpha1
