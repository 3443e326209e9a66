// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"context"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

// completeLimit is the time for which a shell waits for a stack during completion.
const completeLimit = time.Second

// CompleteInstances completes -n with the names of running instances and their pods.
func (c *Call) CompleteInstances(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	all, err := c.Place.List()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []cobra.Completion
	for _, i := range all {
		if i.Running {
			names = append(names, i.Name)
			if i.Pod != nil {
				names = append(names, i.Pod.String())
			}
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// CompleteName completes the only argument with the names of running instances.
func (c *Call) CompleteName(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return c.CompleteInstances(cmd, args, toComplete)
}

// CompleteNameThen completes the first argument with the names of running instances, and
// others with files.
func (c *Call) CompleteNameThen(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	names, _ := c.CompleteInstances(cmd, args, toComplete)
	return names, cobra.ShellCompDirectiveDefault
}

// completer returns the possible words for an argument. It may ignore the typed
// part.
type completer func(ctx context.Context, info *instance.Info, conn *stackconn.Conn, toComplete string) []string

// Complete completes arguments with answers from the selected instance. A shell
// shows no errors, so without an answer there are no completions.
func (c *Call) Complete(words completer) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(context.Background(), completeLimit)
		defer cancel()
		stderr := c.Stderr
		c.Stderr = io.Discard
		defer func() { c.Stderr = stderr }()
		info, conn, err := c.Attach(ctx)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer conn.Close()
		var fit []cobra.Completion
		for _, w := range words(ctx, info, conn, toComplete) {
			if strings.HasPrefix(w, toComplete) {
				fit = append(fit, w)
			}
		}
		return fit, cobra.ShellCompDirectiveNoFileComp
	}
}

// LinkNames returns the interfaces of a stack.
func LinkNames(ctx context.Context, _ *instance.Info, conn *stackconn.Conn, _ string) []string {
	links, err := stacknet.Links(ctx, conn)
	if err != nil {
		return nil
	}
	var names []string
	for _, l := range links {
		names = append(names, l.Name)
	}
	return names
}
