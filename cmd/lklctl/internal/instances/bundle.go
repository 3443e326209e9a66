// SPDX-License-Identifier: Apache-2.0

package instances

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/lklrun/lklrun/cmd/lklctl/internal/verb"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/diag/crash"
	"github.com/lklrun/lklrun/internal/diag/rpc"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stack/ctlproto"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// bundleMade is the JSON output of bundle.
type bundleMade struct {
	File  string `json:"file"`  // path of the bundle
	Bytes int64  `json:"bytes"` // size of the bundle
}

// Bundle returns the verb bundle.
func Bundle(c *verb.Call) *cobra.Command {
	var to string
	cmd := &cobra.Command{
		Use:   "bundle [--to FILE.tar.gz]",
		Short: "collect diagnostics of a stack into one file",
		Long: `bundle writes the log, sockets, counters, settings and account of a run to one
file. It masks likely secrets; check the file before you pass it on.`,
		Example: "  lklctl bundle\n  lklctl -n web bundle --to web.tar.gz",
		Args:    verb.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), verb.QueryLimit)
			defer cancel()
			b, err := gatherBundle(ctx, c)
			if err != nil {
				return err
			}
			if to == "" {
				to = b.Base()
			}
			if err := b.Save(to); err != nil {
				return fmt.Errorf("writing %s: %w", to, err)
			}
			made := bundleMade{File: to}
			if abs, err := filepath.Abs(to); err == nil {
				made.File = abs
			}
			if st, err := os.Stat(to); err == nil {
				made.Bytes = st.Size()
			}
			if c.Output == cli.OutputJSON {
				return cli.WriteJSON(c.Stdout, made)
			}
			_, err = fmt.Fprintln(c.Stdout, to)
			return err
		},
	}
	c.Flags(cmd.Flags(), true)
	cmd.Flags().StringVar(&to, "to", "", "write to `FILE` (default: NAME-TIME.tar.gz in this folder)")
	verb.Document(cmd, bundleMade{})
	return cmd
}

// gatherBundle collects the report from the instance, even if its kernel has
// panicked.
func gatherBundle(ctx context.Context, c *verb.Call) (*crash.Report, error) {
	info, conn, err := c.Dial(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	b := crash.New(info.Name, "made by lklctl bundle", time.Now())
	if err := c.Fetch(ctx, info, instance.PlanFile, instance.JournalFile, instance.ResolvFile, instance.LogFile); err != nil {
		return nil, err
	}
	b.AddRun(info.Files(), &info.State)
	switch conn.Hello().State {
	case ctlproto.CTL_STATE_PANICKED:
		b.AddKernelLog(ctx, conn)
		b.AddStats(ctx, conn)
		b.NoteMissing(crash.PacketsFile, fmt.Errorf("lklrun puts them into its own bundle, if it kept any"))
	case ctlproto.CTL_STATE_NEW:
		b.NoteMissing("the whole stack", fmt.Errorf("it has not booted yet"))
	default:
		b.AddStack(ctx, conn)
		bundlePackets(ctx, c, b, info, conn)
	}
	return b, ctx.Err()
}

// bundlePackets adds the packets that lklrun has kept. On this machine, lklrun
// receives a file as a descriptor and writes the packets to it. On a device, the
// packets are fetched over the connection instead.
func bundlePackets(ctx context.Context, c *verb.Call, b *crash.Report, info *instance.Info, conn *stackconn.Conn) {
	if c.Far == nil {
		b.AskPackets(ctx, conn)
		return
	}
	var kept rpc.PacketsKept
	var pcapng []byte
	err := c.Fetch(ctx, info, crash.PacketsFile)
	if err == nil {
		pcapng, err = os.ReadFile(filepath.Join(info.Files(), crash.PacketsFile))
	}
	if err == nil {
		var text []byte
		if text, err = os.ReadFile(filepath.Join(info.Files(), crash.KeptFile)); err == nil {
			err = json.Unmarshal(text, &kept)
		}
	}
	if err != nil {
		b.NoteMissing(crash.PacketsFile, err)
		return
	}
	b.AddPackets(kept, pcapng)
}
