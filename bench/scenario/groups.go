// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/lklrun/lklrun/bench/lab"
	"github.com/lklrun/lklrun/bench/report"
	"github.com/lklrun/lklrun/bench/table"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

// This scenario compares changing many interfaces of a stack at once, as a group, with
// one command for each interface. This is the purpose of device groups in Linux.

const (
	groups      = "groups" // name of the scenario and the run
	groupNumber = 7
	groupAddr   = "10.0.0.1/24"
	atOnce      = "group"
	oneByOne    = "one-by-one"
)

// groupSizes lists the numbers of interfaces. The quick form uses the first two.
var groupSizes = []int{128, 256, 512, 1024, 2048}

func init() {
	register(Scenario{
		Order: 400, Name: groups, Title: "Groups of interfaces", Seed: "001", Quick: true,
		About: "`lklctl` changes dummy interfaces of a running stack as a group (`link set group 7 mtu 1400`, `addr " +
			"add 10.0.0.1/24 group 7`) and one by one, with a command for each. The kernel has one message for " +
			"the first three changes of a group. An address is sent to all members in one call. `up` gives each " +
			"interface its IPv6 addresses and routes. The measurement of 2012 that accompanied groups in Linux " +
			"set the MTU of 2,048 interfaces in 0.32 s instead of 21.74 s.",
		Budget: Budget{Quick: 10 * time.Second, Full: 170 * time.Second},
		Build:  buildGroups, Targets: groupTargets(), Figures: groupFigures,
	})
}

func groupKey(what string, n int, way string) table.Key {
	return table.Key{Scenario: groups, What: what, Params: table.Params{"n": strconv.Itoa(n)}, Variant: way}
}

// A groupChange is a verb of lklctl with a value for a group or an interface. back
// restores the previous state. It is "" if the next change replaces the value
// anyway.
type groupChange struct {
	what string
	do   func(value int, whom string) string
	back string
}

var groupChanges = []groupChange{
	{"mtu", func(v int, whom string) string { return fmt.Sprintf("link set %s mtu %d", whom, 1400+v) }, ""},
	{"link-address", func(v int, whom string) string {
		return fmt.Sprintf("link set %s address 02:00:00:00:00:%02x", whom, v)
	}, ""},
	{"up", func(_ int, whom string) string { return fmt.Sprintf("link set %s up", whom) }, fmt.Sprintf("link set group %d down", groupNumber)},
	{"address", func(_ int, whom string) string { return fmt.Sprintf("addr add %s %s", groupAddr, whom) }, fmt.Sprintf("addr del %s group %d", groupAddr, groupNumber)},
}

// A grouping is a running stack with interfaces in a group.
type grouping struct {
	lab   *lab.Lab
	conn  *stackconn.Conn
	names []string
}

func buildGroups(ctx context.Context, l *lab.Lab) ([]Measure, error) {
	r := lab.Run{Variant: lab.Supervise, Placement: lab.Unpinned, Flags: []string{"--quiet", "--if", "user"}}
	if _, err := l.StartLklrun(ctx, r, groups, "sleep", "600"); err != nil {
		return nil, err
	}
	conn, err := l.Dial(ctx, groups)
	if err != nil {
		return nil, err
	}
	l.Cleanup(func() { conn.Close() })
	g := &grouping{lab: l, conn: conn}
	sizes := groupSizes
	if !l.Form.Full {
		sizes = sizes[:2]
	}
	var ms []Measure
	for _, n := range sizes {
		for _, c := range groupChanges {
			for _, way := range []string{atOnce, oneByOne} {
				ms = append(ms, Measure{Key: groupKey(c.what, n, way), Once: true, Take: func(ctx context.Context) (table.Sample, error) {
					if err := g.grow(ctx, n); err != nil {
						return nil, err
					}
					return g.change(ctx, c, way)
				}})
			}
		}
	}
	return ms, nil
}

// grow adds interfaces up to a total of n.
func (g *grouping) grow(ctx context.Context, n int) error {
	if len(g.names) == n {
		return nil
	}
	if err := stacknet.AddDummies(ctx, g.conn, fmt.Sprintf("n%d_%%d", n), n-len(g.names), groupNumber); err != nil {
		return err
	}
	links, err := stacknet.Links(ctx, g.conn)
	if err != nil {
		return err
	}
	g.names = nil
	for _, l := range links {
		if l.Group == groupNumber {
			g.names = append(g.names, l.Name)
		}
	}
	return nil
}

// change makes a change in one way and returns how long the change took. It then
// undoes the change.
func (g *grouping) change(ctx context.Context, c groupChange, way string) (table.Sample, error) {
	verbs := []string{c.do(1, fmt.Sprintf("group %d", groupNumber))}
	if way == oneByOne {
		verbs = nil
		for _, name := range g.names {
			verbs = append(verbs, c.do(2, name))
		}
	}
	began := time.Now()
	for _, v := range verbs {
		if err := g.lklctl(ctx, v); err != nil {
			return nil, err
		}
	}
	took := time.Since(began)
	if c.back != "" {
		if err := g.lklctl(ctx, c.back); err != nil {
			return nil, err
		}
	}
	return table.Sample{"s": took.Seconds()}, nil
}

func (g *grouping) lklctl(ctx context.Context, verb string) error {
	_, err := g.lab.Output(ctx, append([]string{g.lab.Bin("lklctl"), "-n", groups, "-o", "json"}, strings.Fields(verb)...)...)
	return err
}

func groupTargets() []table.Target {
	most := groupSizes[len(groupSizes)-1]
	var ts []table.Target
	for _, c := range groupChanges {
		ts = append(ts, table.Target{Criterion: "7", What: "one by one, " + c.what + " of 2,048", Unit: "s", AtLeast: 20,
			Of: groupKey(c.what, most, oneByOne), Base: groupKey(c.what, most, atOnce)},
			table.Target{Criterion: "7", What: "as a group, " + c.what + " of 2,048", Unit: "s", AtMost: 0.32, Of: groupKey(c.what, most, atOnce)})
	}
	return ts
}

func groupFigures(s *table.Set) []report.Plot {
	f := report.Figure{Name: "groups-mtu", Title: "Changing the MTU of all interfaces", X: "interfaces", Y: "s", LogX: true, LogY: true}
	for _, way := range []string{oneByOne, atOnce} {
		line := report.Line{Name: way}
		for _, n := range groupSizes {
			line.Add(s, float64(n), groupKey("mtu", n, way), "s")
		}
		f.Lines = append(f.Lines, line)
	}
	return []report.Plot{f}
}
