// SPDX-License-Identifier: Apache-2.0

package instances

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/cmd/lklctl/internal/verb"
	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// Stop returns the verb stop.
func Stop(c *verb.Call) *cobra.Command {
	var signal string
	var grace, limit time.Duration
	cmd := &cobra.Command{
		Use:   "stop [-s SIGNAL] [--grace TIME] [--limit TIME] [NAME]",
		Short: "stop an instance: first the program, then its stack",
		Long: `stop sends SIGNAL to every process of an instance, and SIGKILL after the grace
time. It returns when the instance and all its changes to the host are gone.`,
		Example: "  lklctl stop\n  lklctl stop web -s INT --grace 30s",
		Args:    c.NameArg,
		RunE: func(cmd *cobra.Command, _ []string) error {
			sig, err := parseSignal(signal)
			if err != nil {
				return err
			}
			if grace < 0 || limit <= 0 {
				return exit.Usagef("--grace %v, --limit %v: expected a grace time of 0 or more, and a limit above 0", grace, limit)
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), grace+limit)
			defer cancel()
			info, err := stop(ctx, c, sig, grace)
			if err != nil {
				return err
			}
			if c.Output == cli.OutputJSON {
				return cli.WriteJSON(c.Stdout, map[string]any{"name": info.Name, "stopped": true})
			}
			return nil
		},
	}
	c.Flags(cmd.Flags(), true)
	cmd.ValidArgsFunction = c.CompleteName
	cmd.Flags().StringVarP(&signal, "signal", "s", "TERM", "send `SIGNAL`, a name or a number")
	cmd.Flags().DurationVar(&grace, "grace", 5*time.Second, "send SIGKILL after this `TIME`")
	cmd.Flags().DurationVar(&limit, "limit", 15*time.Second, "wait at most this `TIME` after the grace time")
	return cmd
}

// parseSignal parses TERM, SIGTERM or 15.
func parseSignal(s string) (syscall.Signal, error) {
	name := strings.ToUpper(s)
	if !strings.HasPrefix(name, "SIG") {
		name = "SIG" + name
	}
	if sig := unix.SignalNum(name); sig != 0 {
		return sig, nil
	}
	var n int
	if k, err := fmt.Sscanf(s+"\n", "%d\n", &n); err == nil && k == 1 && n > 0 && n < 65 {
		return syscall.Signal(n), nil
	}
	return 0, exit.Usagef("signal %q: expected a name such as TERM, or a number from 1 to 64", s)
}

func stop(ctx context.Context, c *verb.Call, sig syscall.Signal, grace time.Duration) (*instance.Info, error) {
	info, conn, err := c.Dial(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.Stop(ctx, sig, grace); err != nil && !errors.Is(err, stackconn.ErrClosed) {
		return nil, fmt.Errorf("instance %q: %w", info.Name, err)
	}
	select {
	case <-conn.Done():
	case <-ctx.Done():
		return nil, fmt.Errorf("instance %q: its stack did not end in time; see lklctl list and lklrun cleanup", info.Name)
	}
	return info, gone(ctx, c, info)
}

// gone waits until lklrun has reverted its changes and removed the run directory.
func gone(ctx context.Context, c *verb.Call, info *instance.Info) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := os.Stat(info.Files()); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		// Another run may have taken the name in the meantime.
		now, err := c.Place.Open(info.Name)
		switch {
		case err == nil && now.PID != info.PID && now.PID != 0:
			return nil
		case err != nil && abandoned(info):
			return fmt.Errorf("instance %q ended without removing %s; run lklrun cleanup", info.Name, info.Dir)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("instance %q: its stack has ended, but lklrun (pid %d) is still running", info.Name, info.PID)
		}
	}
}

// abandoned reports whether all processes that could remove the run directory have
// ended.
func abandoned(info *instance.Info) bool {
	// The process of an instance on another machine cannot be checked. Instead, an
	// unlocked run directory shows that its processes have ended.
	if info.PID == 0 || info.Device == "" && !errors.Is(unix.Kill(info.PID, 0), unix.ESRCH) {
		return false
	}
	_, err := os.Stat(info.Files()) // may have been removed between the two checks
	return err == nil
}
