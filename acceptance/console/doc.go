// Package console looks at the console as people do: in a browser without a window, on what `isobar up` and
// `isobar console` serve, and on an `isobar server` that believes an OpenID Connect provider. What pages show is held
// against the API, and each page against the rules of accessibility.
package console
