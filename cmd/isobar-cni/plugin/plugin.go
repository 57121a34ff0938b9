// Package plugin is the plugin of the Container Network Interface that container
// runtimes run, as command isobar-cni and in isobar itself. It passes each command on to the agent on its Node.
//
// Without an agent a Pod cannot be attached, for nothing would enforce its policies:
// the runtime is told to try again later. It can be removed: its interface goes
// with its namespace, and the agent gives its addresses back when it finds that.
package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"isobar.dev/dataplane/cni"
	"isobar.dev/dataplane/cni/rpc"
)

// most is the longest that an agent may take. Runtimes give up after minutes.
const most = 90 * time.Second

// Name is that of the command.
const Name = "isobar-cni"

// Main carries out the command that the environment says.
func Main() {
	skel.PluginMainFuncs(skel.CNIFuncs{
		Add: func(args *skel.CmdArgs) error {
			answer, err := ask(args, rpc.CNIClient.Add)
			if err != nil {
				return types.NewError(types.ErrTryAgainLater, "no Pod is attached without the agent, which enforces policies", err.Error())
			}
			return print(answer)
		},
		Del: func(args *skel.CmdArgs) error {
			answer, err := ask(args, rpc.CNIClient.Del)
			if status.Code(err) == codes.Unavailable {
				fmt.Fprintln(os.Stderr, "isobar-cni: the agent is away; it gives the addresses back when it is here again:", err)
				return nil
			}
			return end(answer, err, types.ErrTryAgainLater)
		},
		Check: func(args *skel.CmdArgs) error {
			answer, err := ask(args, rpc.CNIClient.Check)
			return end(answer, err, types.ErrTryAgainLater)
		},
		GC: func(args *skel.CmdArgs) error {
			answer, err := ask(args, rpc.CNIClient.GC)
			return end(answer, err, types.ErrTryAgainLater)
		},
		Status: func(args *skel.CmdArgs) error {
			answer, err := ask(args, rpc.CNIClient.Status)
			return end(answer, err, types.ErrPluginNotAvailable)
		},
	}, cni.Versions, "isobar-cni: attaches Pods to the network and policies of Isobar")
}

// ask passes a command on to the agent; the error is one of gRPC.
func ask(args *skel.CmdArgs, method func(rpc.CNIClient, context.Context, *rpc.Call, ...grpc.CallOption) (*rpc.Answer, error)) (*rpc.Answer, error) {
	conf := struct {
		Socket string `json:"socket"`
	}{cni.DefaultSocket}
	if err := json.Unmarshal(args.StdinData, &conf); err != nil {
		return nil, fmt.Errorf("the network configuration cannot be read: %w", err)
	}
	if !filepath.IsAbs(conf.Socket) {
		return nil, fmt.Errorf("socket %q: want an absolute path", conf.Socket)
	}
	conn, err := grpc.NewClient("unix://"+conf.Socket, grpc.WithTransportCredentials(insecure.NewCredentials())) // the socket is root's alone
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	return method(rpc.NewCNIClient(conn), ctx, &rpc.Call{
		ContainerId: args.ContainerID, Netns: args.Netns, Ifname: args.IfName, Args: args.Args, Path: args.Path, Config: args.StdinData,
	})
}

// end is how a command without a result ends.
func end(answer *rpc.Answer, err error, away uint) error {
	if err != nil {
		return types.NewError(away, "the agent does not answer", err.Error())
	}
	return errorOf(answer)
}

func errorOf(answer *rpc.Answer) error {
	if e := answer.Error; e != nil {
		return types.NewError(uint(e.Code), e.Msg, e.Details)
	}
	return nil
}

func print(answer *rpc.Answer) error {
	if err := errorOf(answer); err != nil {
		return err
	}
	_, err := os.Stdout.Write(append(answer.Result, '\n'))
	return err
}
