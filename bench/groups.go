// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/lklrun/lklrun/internal/ctlproto"
	"github.com/lklrun/lklrun/internal/stackconn"
	"github.com/lklrun/lklrun/internal/stacknet"
)

// Many interfaces of a stack changed at once, as a group, against one after the
// other by a command each: the question that made Linux have groups of devices.

// groupSizes are how many interfaces there are.
var groupSizes = []int{128, 256, 512, 1024, 2048}

const (
	groupRun    = "groups" // the run's name
	groupNumber = "7"
	groupAddr   = "10.0.0.1/24"
	groupLimit  = 5 * time.Minute // for all interfaces, one by one
)

// A groupChange is a verb of lklctl with a value for a group or an interface; back
// makes that there is something to change again, "" when another value does.
type groupChange struct {
	what string
	do   func(value int, whom ...string) []string
	back string
}

var groupChanges = []groupChange{
	{"MTU", func(n int, whom ...string) []string {
		return append(append([]string{"link", "set"}, whom...), "mtu", strconv.Itoa(1400+n))
	}, ""},
	{"link address", func(n int, whom ...string) []string {
		return append(append([]string{"link", "set"}, whom...), "address", fmt.Sprintf("02:00:00:00:00:%02x", n))
	}, ""},
	{"up", func(_ int, whom ...string) []string {
		return append(append([]string{"link", "set"}, whom...), "up")
	}, "link set group " + groupNumber + " down"},
	{"address", func(_ int, whom ...string) []string {
		return append([]string{"addr", "add", groupAddr}, whom...)
	}, "addr del " + groupAddr + " group " + groupNumber},
}

// A groupResult is one change of so many interfaces, in seconds.
type groupResult struct {
	What       string  `json:"what"`
	Interfaces int     `json:"interfaces"`
	Group      float64 `json:"group"`
	OneByOne   float64 `json:"one_by_one"`
}

// groups measures them, in a run of its own.
func (b *bench) groups(ctx context.Context) (results []groupResult, err error) {
	if b.most < groupSizes[0] {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(len(groupSizes))*groupLimit)
	defer cancel()
	target := exec.CommandContext(ctx, filepath.Join(b.root, "bin/lklrun"), "--name", groupRun, "--stack", "vanilla", "--quiet", "--", "cat")
	in, err := target.StdinPipe()
	if err != nil {
		return nil, err
	}
	target.Stderr = os.Stderr
	if err := target.Start(); err != nil {
		return nil, err
	}
	defer func() {
		in.Close()
		if werr := target.Wait(); err == nil {
			err = werr
		}
	}()
	conn, err := dialRun(ctx, groupRun)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	made := 0
	for _, n := range groupSizes {
		if n > b.most {
			break
		}
		number, err := strconv.Atoi(groupNumber)
		if err != nil {
			return nil, err
		}
		if err := stacknet.AddDummies(ctx, conn, fmt.Sprintf("n%d_%%d", n), n-made, number); err != nil {
			return nil, err
		}
		made = n
		links, err := stacknet.Links(ctx, conn)
		if err != nil {
			return nil, err
		}
		var names []string
		for _, l := range links {
			if l.Group == number {
				names = append(names, l.Name)
			}
		}
		for _, c := range groupChanges {
			r := groupResult{What: c.what, Interfaces: n}
			back := func() error {
				if c.back == "" {
					return nil
				}
				_, err := b.timed(ctx, strings.Fields(c.back))
				return err
			}
			if r.Group, err = b.timed(ctx, c.do(1, "group", groupNumber)); err != nil {
				return nil, err
			}
			if err := back(); err != nil {
				return nil, err
			}
			for _, name := range names {
				one, err := b.timed(ctx, c.do(2, name))
				if err != nil {
					return nil, err
				}
				r.OneByOne += one
			}
			if err := back(); err != nil {
				return nil, err
			}
			results = append(results, r)
		}
	}
	return results, nil
}

// timed runs a verb of lklctl and returns the seconds it took.
func (b *bench) timed(ctx context.Context, verb []string) (float64, error) {
	ms, err := elapsed(ctx, append([]string{filepath.Join(b.root, "bin/lklctl"), "-n", groupRun, "-o", "json"}, verb...))
	return ms / 1e3, err
}

// dialRun connects to a run's stack when it runs.
func dialRun(ctx context.Context, name string) (*stackconn.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, wireLimit)
	defer cancel()
	for {
		conn, err := stackconn.Dial(ctx, filepath.Join("/run/lklrun", name, "ctl.sock"))
		if err == nil {
			if conn.Hello().State == ctlproto.CTL_STATE_RUNNING {
				return conn, nil
			}
			conn.Close()
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("waiting for lklrun: %w", err)
		}
	}
}

// groupTable prints them: a row for each number of interfaces.
func groupTable(w io.Writer, results []groupResult) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(tw, "\ninterfaces\t")
	for _, c := range groupChanges {
		fmt.Fprintf(tw, "%s: group\tone by one\t", c.what)
	}
	last := 0
	for _, r := range results {
		if r.Interfaces != last {
			fmt.Fprintf(tw, "\n%d\t", r.Interfaces)
			last = r.Interfaces
		}
		fmt.Fprintf(tw, "%.3f\t%.2f\t", r.Group, r.OneByOne)
	}
	fmt.Fprintln(tw)
	_ = tw.Flush() // to the terminal
	fmt.Fprintln(w, "\nseconds that lklctl takes to change interfaces of a running stack: all at once, or by a command for each")
}
