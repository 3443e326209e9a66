// SPDX-License-Identifier: Apache-2.0

package instances

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/cmd/lklctl/internal/verb"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/instance"
)

// netnsRow is a network namespace that a program of a run has made.
type netnsRow struct {
	// Instance is the name of the instance.
	Instance string `json:"instance"`
	// Inode is the number of the namespace on the host, as in /proc/PID/ns/net.
	Inode uint64 `json:"inode"`
	// Names are the names that "ip netns" has given it on the host.
	Names []string `json:"names,omitempty"`
	// PIDs are the processes in it that this user may see.
	PIDs []int `json:"pids,omitempty"`
}

// listNetns prints the namespaces that the programs of all running instances have made.
func listNetns(ctx context.Context, c *verb.Call) error {
	all, err := c.Place.List()
	if err != nil {
		return err
	}
	pids, names := netnsFiles("/proc/[0-9]*/ns/net"), netnsFiles("/run/netns/*")
	rows := []netnsRow{}
	for _, i := range all {
		if !i.Running || c.Name != "" && !i.Is(c.Name) {
			continue
		}
		inodes, err := madeNetns(ctx, c, i)
		if err != nil {
			return err
		}
		for _, ino := range inodes {
			row := netnsRow{Instance: i.Name, Inode: ino}
			for _, path := range names[ino] {
				row.Names = append(row.Names, filepath.Base(path))
			}
			for _, path := range pids[ino] {
				pid, _ := strconv.Atoi(strings.Split(path, "/")[2]) // the pattern finds only numbers
				row.PIDs = append(row.PIDs, pid)
			}
			rows = append(rows, row)
		}
	}
	t := cli.NewTable("NAME", ">NETNS", "NAMES", "PIDS").Narrow()
	for _, r := range rows {
		t.Row(r.Instance, fmt.Sprint(r.Inode), strings.Join(r.Names, ","), strings.Trim(strings.ReplaceAll(fmt.Sprint(r.PIDs), " ", ","), "[]"))
	}
	return c.Show(rows, len(rows), c.Empty("no program of a run has made a network namespace"), t.Write)
}

// madeNetns returns the inode numbers of the namespaces that an instance's programs have made.
func madeNetns(ctx context.Context, c *verb.Call, i instance.Info) ([]uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, verb.QueryLimit)
	defer cancel()
	named := *c
	named.Name = i.Name
	info, conn, err := named.Dial(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // it has ended meanwhile
	}
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	inodes, err := conn.Netns(ctx, 0)
	if errors.Is(err, syscall.EOPNOTSUPP) {
		return nil, nil // the engine preload has none
	}
	return inodes, verb.NoAnswer(ctx, info, conn, err)
}

// netnsFiles returns the files that match pattern by inode number.
func netnsFiles(pattern string) map[uint64][]string {
	found := map[uint64][]string{}
	paths, _ := filepath.Glob(pattern) // a constant pattern causes no error
	for _, path := range paths {
		var st unix.Stat_t
		if unix.Stat(path, &st) == nil {
			found[st.Ino] = append(found[st.Ino], path)
		}
	}
	return found
}
