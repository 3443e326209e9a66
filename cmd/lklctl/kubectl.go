// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/lklrun/lklrun/cmd/lklctl/internal/verb"
	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/base/text"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/remote"
	"github.com/lklrun/lklrun/internal/remote/forward"
)

const (
	kubectlVerb = "kubectl"
	// pluginName is the name under which kubectl starts this program: kubectl lklctl.
	pluginName = "kubectl-lklctl"

	nodesAtOnce = 8 // for list
	nodeLimit   = 30 * time.Second
)

// kubectlFlags are flags of kubectl that it gets unchanged.
var kubectlFlags = []struct{ name, usage string }{
	{"context", "use this `CONTEXT` of the kubeconfig file"},
	{"kubeconfig", "use this kubeconfig `FILE`"},
	{"cluster", "use this `CLUSTER` of the kubeconfig file"},
	{"user", "use this `USER` of the kubeconfig file"},
	{"as", "impersonate this `USER`"},
}

// kubectlCommand returns the verb kubectl.
func kubectlCommand(c *verb.Call) *cobra.Command {
	var cluster remote.Cluster
	var namespace string
	values := make([]string, len(kubectlFlags))
	cmd := &cobra.Command{
		Use:   kubectlVerb + " [FLAG]... POD VERB [ARG]... | " + kubectlVerb + " list [ARG]...",
		Short: "run a verb on the stack of a pod of Kubernetes",
		Long: `kubectl runs a verb of lklctl on the stack of a pod. The program kubectl finds
the node of the pod, and executes lklrun in the pod of the DaemonSet there. The
output is that of the verb, and files that it writes are on this machine.

"kubectl list" lists the stacks of all nodes.

"kubectl lklctl" is the same as "lklctl kubectl".`,
		Example: `  kubectl lklctl list
  kubectl lklctl -n shop web-7d9 netstat -ti
  kubectl lklctl -n shop web-7d9 capture -w web.pcapng tcp port 80
  kubectl lklctl --context lab web-7d9 exec -- ss -tinM`,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return cmd.Help()
			case c.Name != "":
				return exit.Usagef("-n %s: give the namespace of the pod after the word kubectl", c.Name)
			}
			for i, f := range kubectlFlags {
				if cmd.Flags().Changed(f.name) {
					cluster.Flags = append(cluster.Flags, "--"+f.name+"="+values[i])
				}
			}
			inner := *c
			inner.Began, inner.Device = false, ""
			if args[0] == "list" || args[0] == "ps" || args[0] == "ls" {
				return listNodes(cmd.Context(), &inner, &cluster, args)
			}
			if len(args) == 1 {
				return exit.Usagef("pod %q: no VERB given; see %s --help", args[0], cmd.CommandPath())
			}
			if err := onPod(cmd.Context(), &inner, &cluster, namespace, args[0]); err != nil {
				return err
			}
			return &verb.EndError{End: perform(cmd.Context(), &inner, args[1:])}
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false) // arguments after the pod belong to the verb
	f.StringVarP(&namespace, "namespace", "n", "", "find the pod in this `NAMESPACE` (default: that of the context)")
	f.StringVar(&cluster.Namespace, "agent-namespace", "lklrun", "use the DaemonSet in this `NAMESPACE`")
	for i, k := range kubectlFlags {
		f.StringVar(&values[i], k.name, "", k.usage)
	}
	return cmd
}

// onPod makes the call use the stack of a pod.
func onPod(ctx context.Context, c *verb.Call, cluster *remote.Cluster, namespace, name string) error {
	name = strings.TrimPrefix(name, "pod/") // as kubectl get -o name prints it
	if strings.Contains(name, "/") {
		return exit.Usagef("%q is not a pod; expected POD or pod/POD", name)
	}
	p, err := cluster.Pod(ctx, namespace, name)
	if errors.Is(err, remote.ErrNoPod) {
		return &exit.StatusError{Err: err, Status: exit.NoInstance}
	}
	if err != nil {
		return err
	}
	agent, err := cluster.Agent(ctx, p.Node)
	if err != nil {
		return err
	}
	c.Name = p.Namespace + "/" + p.Name
	c.UseNode(&verb.Node{Cluster: cluster, Agent: agent})
	return nil
}

// listNodes lists the instances of all nodes. If a node does not answer, the list omits
// it, and the status is that of a failed connection.
func listNodes(ctx context.Context, c *verb.Call, cluster *remote.Cluster, args []string) error {
	agents, err := cluster.Agents(ctx, "")
	if err != nil {
		return err
	}
	if len(agents) == 0 {
		return exit.Usagef("namespace %s has no pod of lklrun; install its DaemonSet, or use --agent-namespace", cluster.Namespace)
	}
	folder, err := forward.NewFolder()
	if err != nil {
		return err
	}
	defer folder.Close()
	nodes := slices.Sorted(maps.Keys(agents))
	places, errs := make([]instance.Place, len(nodes)), make([]error, len(nodes))
	var g errgroup.Group
	g.SetLimit(nodesAtOnce)
	for n, node := range nodes {
		g.Go(func() error {
			places[n], errs[n] = listNode(ctx, cluster, agents[node], folder.Path)
			return nil
		})
	}
	_ = g.Wait() // errs has the errors
	status := 0
	for n, err := range errs {
		if err != nil {
			cli.Note(c.Stderr, verb.Program, "%s", text.OneLine(err.Error()))
			status = exitConnection
			continue
		}
		c.Places = append(c.Places, places[n])
	}
	if len(c.Places) == 0 {
		return &verb.EndError{End: exit.End{Status: status}}
	}
	end := perform(ctx, c, args)
	if end.Status == 0 {
		end.Status = status
	}
	return &verb.EndError{End: end}
}

// exitConnection is the status if the connection to a device has failed.
const exitConnection = 125

// listNode shows the instances of a node in a new folder below dir.
func listNode(ctx context.Context, cluster *remote.Cluster, agent remote.KubePod, dir string) (instance.Place, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, nodeLimit, fmt.Errorf("node %s did not answer within %v", agent.Node, nodeLimit))
	defer cancel()
	ready, err := cluster.Ready(agent)
	if err != nil {
		return instance.Place{}, err
	}
	defer ready.Close()
	var out, said remote.Head
	status, err := ready.Call(ctx, remote.Command{Stdout: &out, Stderr: &said}, "device", "list")
	if err != nil {
		return instance.Place{}, err
	}
	var all []instance.Info
	if status != 0 || json.Unmarshal(out.Bytes(), &all) != nil {
		return instance.Place{}, fmt.Errorf("%s: lklrun there exited with status %d: %s", ready.Name(), status, text.OneLine(said.String()))
	}
	place := instance.Place{Device: ready.Name()}
	if place.Root, err = os.MkdirTemp(dir, ""); err != nil {
		return place, err
	}
	for i := range all {
		all[i].Device = ready.Name()
		if _, err := instance.Publish(place.Root, all[i]); err != nil {
			return place, fmt.Errorf("%s: %w", ready.Name(), err)
		}
	}
	return place, nil
}
