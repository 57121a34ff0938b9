// Command kubectl is Kubernetes' own code of some of its commands, of the version of our
// k8s.io modules, for tests of what we serve. All of kubectl would take half as long again to build.
//
//	go -C tools/kubectl run . get vm -A
package main

import (
	"os"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd/apiresources"
	"k8s.io/kubectl/pkg/cmd/auth"
	"k8s.io/kubectl/pkg/cmd/create"
	"k8s.io/kubectl/pkg/cmd/describe"
	"k8s.io/kubectl/pkg/cmd/explain"
	"k8s.io/kubectl/pkg/cmd/get"
	"k8s.io/kubectl/pkg/cmd/util"
)

func main() {
	const name = "kubectl"
	streams := genericclioptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	flags := genericclioptions.NewConfigFlags(true)
	factory := util.NewFactory(util.NewMatchVersionFlags(flags))
	root := &cobra.Command{Use: name}
	flags.AddFlags(root.PersistentFlags())
	root.AddCommand(
		apiresources.NewCmdAPIResources(flags, streams),
		auth.NewCmdAuth(factory, streams),
		create.NewCmdCreate(factory, streams),
		describe.NewCmdDescribe(name, factory, streams),
		explain.NewCmdExplain(name, factory, streams),
		get.NewCmdGet(name, factory, streams),
	)
	os.Exit(cli.Run(root))
}
