// Command isobar-cni is the CNI plugin that container runtimes run.
package main

import "isobar.dev/cmd/isobar-cni/plugin"

func main() { plugin.Main() }
