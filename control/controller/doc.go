// Package controller runs the main job: accounts become an inventory, the
// inventory ExternalEntities and workloads, the Snapshot Rulesets, and one loop
// for each Target makes its cloud enforce them.
//
// Everything is level-triggered: each loop looks at what is and writes what
// differs, so a restart, a lost event or a missed watch costs a look and no
// write. What could not be read is never taken for empty: a region or a selector
// that fails keeps the VMs that it last told of, an account without credentials
// keeps all of them, and no Target is written to before everything that may
// concern it has been read once.
package controller
