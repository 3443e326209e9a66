// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/lklrun/lklrun/internal/diag/counters"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

// Condition is a condition on a counter of a node: see ParseCondition.
type Condition struct {
	text, node, counter, operator string
	number                        int64
}

// Stop is the moment at which a Condition held.
type Stop struct {
	Condition string  `json:"condition"`
	Node      string  `json:"node"`    // on which it held
	Value     int64   `json:"value"`   // of the counter
	Seconds   float64 `json:"seconds"` // virtual time since the start of the lab

	Instances []string `json:"-"` // names of the nodes for lklctl, in the order of the plan
}

// ConditionError is the error for a condition that cannot hold on any node.
type ConditionError struct {
	Condition string
	Err       error
}

// Error names the condition.
func (e *ConditionError) Error() string { return fmt.Sprintf("%q: %v", e.Condition, e.Err) }

// Unwrap returns the error without the condition.
func (e *ConditionError) Unwrap() error { return e.Err }

var conditionForm = regexp.MustCompile(`^(?:([a-z0-9][a-z0-9_-]*):)?([A-Za-z][A-Za-z0-9_.-]*)(>=|<=|>|<|=)([0-9]{1,18})$`)

// ParseCondition parses a condition: COUNTER, an operator (>, >=, <, <= or =) and a number, such
// as drops>0. The counter is one of those of "lklctl counters", or a group of them such as drops,
// whose sum counts. The condition holds if it does on any node, or on NODE in NODE:COUNTER>N.
func ParseCondition(text string) (*Condition, error) {
	m := conditionForm.FindStringSubmatch(text)
	if m == nil {
		return nil, &ConditionError{text, errors.New("expected [NODE:]COUNTER, then >, >=, <, <= or =, and a number, such as drops>0")}
	}
	n, err := strconv.ParseInt(m[4], 10, 64)
	return &Condition{text, m[1], m[2], m[3], n}, err
}

// String returns the condition as it was parsed.
func (c *Condition) String() string { return c.text }

func (c *Condition) holds(n int64) bool {
	switch c.operator {
	case ">":
		return n > c.number
	case ">=":
		return n >= c.number
	case "<":
		return n < c.number
	case "<=":
		return n <= c.number
	}
	return n == c.number
}

// stopWatch is the counter of the condition on a node.
type stopWatch struct {
	node int // in the plan
	*counters.Watch
}

// watch opens the counter of StopAt, and checks whether the condition holds from the start.
func (r *virtualRun) watch() error {
	c := r.o.StopAt
	if c == nil {
		return nil
	}
	var unknown *counters.UnknownError
	for k, n := range r.plan.Nodes {
		if c.node != "" && c.node != n.Name {
			continue
		}
		err := r.lab.Look(k, func(ctx context.Context, conn *stackconn.Conn, nl *stacknet.Netlink) error {
			w, err := counters.NewWatch(ctx, conn, nl, c.counter)
			if errors.As(err, &unknown) {
				return nil
			}
			r.watches = append(r.watches, stopWatch{k, w})
			return err
		})
		if err != nil {
			return err
		}
	}
	if len(r.watches) == 0 {
		return &ConditionError{c.text, unknown}
	}
	return r.check(true)
}

// check ends the lab if the condition of StopAt holds on a node that has done anything since
// the last check; with all, on any node.
func (r *virtualRun) check(all bool) error {
	for _, w := range r.watches {
		if !all && !r.lab.Moved(w.node) {
			continue
		}
		var value int64
		err := r.lab.Look(w.node, func(ctx context.Context, _ *stackconn.Conn, _ *stacknet.Netlink) (err error) {
			value, err = w.Value(ctx)
			return err
		})
		if err != nil {
			return err
		}
		if r.o.StopAt.holds(value) {
			r.stop = &Stop{Condition: r.o.StopAt.text, Node: r.plan.Nodes[w.node].Name, Value: value, Seconds: r.lab.Now().Seconds()}
			return errUntil
		}
	}
	return nil
}

// hold shows the nodes to lklctl.
func (r *virtualRun) hold(ctx context.Context) error {
	var states []instance.State
	for k := range r.plan.Nodes {
		n := &r.plan.Nodes[k]
		states = append(states, instance.State{Name: n.Instance, PID: os.Getpid(), Stack: n.Stack, Engine: instance.EngineVirtual, Started: time.Now(), Command: n.Run})
		r.stop.Instances = append(r.stop.Instances, n.Instance)
	}
	return r.lab.Hold(ctx, states, func(ctx context.Context) { r.o.Hold(ctx, r.stop) })
}

// checkNode checks that a plan has the node of the condition.
func (c *Condition) checkNode(p *Plan) error {
	if c.node == "" || slices.ContainsFunc(p.Nodes, func(n PlannedNode) bool { return n.Name == c.node }) {
		return nil
	}
	return &ConditionError{c.text, fmt.Errorf("the lab has no node %q", c.node)}
}
