// SPDX-License-Identifier: Apache-2.0

package instances

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/lklrun/lklrun/cmd/lklctl/internal/verb"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/diag/egress"
	"github.com/lklrun/lklrun/internal/diag/rpc"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// showEgress shows what the program of an instance asked of a gateway with rules.
func showEgress(ctx context.Context, c *verb.Call, info *instance.Info, conn *stackconn.Conn) error {
	a, err := rpc.Do(ctx, conn, rpc.Egress, struct{}{}, nil)
	if err == nil && a == nil {
		err = errors.New("the run has no rules; start it with lklrun --allow DESTINATION")
	}
	if err != nil {
		return fmt.Errorf("instance %q: %w", info.Name, err)
	}
	none := c.Empty("instance %q: the program has asked for nothing yet", info.Name)
	return c.Show(a, len(a.Names)+len(a.Destinations), none, func(w io.Writer) error { return egressTable(a).Write(w) })
}

func egressTable(a *egress.Account) *cli.Table {
	result := map[bool]string{true: "allowed", false: "refused"}
	t := cli.NewTable("RESULT", ">COUNT", "WHAT", "DETAILS").Narrow()
	for n := range a.Names {
		x := &a.Names[n]
		details := x.Reason
		if len(x.Ignored) > 0 {
			details = "ignored " + strings.Join(x.Ignored, ", ")
		}
		t.Row(result[x.Allowed], fmt.Sprint(x.Count), "name "+x.Name, details)
	}
	for n := range a.Destinations {
		x := &a.Destinations[n]
		details := x.Reason
		if x.Name != "" {
			details = "for " + x.Name
		}
		t.Row(result[x.Allowed], fmt.Sprint(x.Count), x.String(), details)
	}
	return t
}
