// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lklrun/lklrun/internal/diag/live"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stack/sockdiag"
)

// Overview is the data of the page of all instances, sent each second. Instances whose
// interfaces of type wire have the same host side are joined.
type Overview struct {
	Time      time.Time `json:"time"`      // time of the samples
	Instances []Node    `json:"instances"` // running instances, in the order of lklctl list
}

// Node is a running instance in the Overview.
type Node struct {
	Instance
	Problem string         `json:"problem,omitempty"` // reason why there are no rates
	RxRate  sockdiag.Value `json:"rx_bit_s,omitzero"` // bits per second received by these interfaces
	TxRate  sockdiag.Value `json:"tx_bit_s,omitzero"` // bits per second sent by these interfaces
	Links   []End          `json:"links"`             // interfaces that lklrun created
}

// End is an interface of a Node.
type End struct {
	Type string `json:"type"`           // interface type: user, wire, tap, ...
	Host string `json:"host,omitempty"` // host side: name of the wire or device, or a descriptor
	live.Link
}

// openAny opens the source of an instance or, without a name, of the Overview.
func (a Attach) openAny(list func() ([]instance.Info, error)) func(context.Context, string) (source, error) {
	return func(ctx context.Context, name string) (source, error) {
		if name == "" {
			return &overview{list: list, open: a.sampler, all: map[string]*inspected{}}, nil
		}
		return a.open(ctx, name)
	}
}

// Limits for the queries of one instance.
const (
	sampleLimit = 1500 * time.Millisecond // a stack that takes longer delays the picture
	againAfter  = 10 * time.Second        // time until a stack that did not answer is asked again
)

// sampler samples the interfaces of one instance.
type sampler interface {
	Sample(ctx context.Context) ([]live.Link, error)
	Close() error
}

// overview is the source of the Overview.
type overview struct {
	list func() ([]instance.Info, error)
	open func(ctx context.Context, name string) (sampler, error)
	all  map[string]*inspected // by run directory and PID
}

// An inspected is an instance in the overview.
type inspected struct {
	sampler sampler // nil: not connected
	links   []live.Link
	problem string
	again   time.Time // no query before this time
}

// Snapshot samples the interfaces of all instances at the same time.
func (o *overview) Snapshot(ctx context.Context) (any, error) {
	found, err := o.list()
	if err != nil {
		return nil, err
	}
	found = slices.DeleteFunc(found, func(i instance.Info) bool { return !i.Running })
	var work sync.WaitGroup
	seen := map[string]bool{}
	for n := range found {
		i := &found[n]
		k := key(i)
		m := o.all[k]
		if m == nil {
			m = &inspected{}
			o.all[k] = m
		}
		seen[k] = true
		work.Go(func() { m.sample(ctx, i.Name, o.open) })
	}
	work.Wait()
	for k, m := range o.all {
		if !seen[k] {
			m.close()
			delete(o.all, k)
		}
	}
	now := Overview{Time: time.Now(), Instances: []Node{}}
	for n := range found {
		now.Instances = append(now.Instances, newNode(&found[n], o.all[key(&found[n])]))
	}
	return now, nil
}

// key identifies an instance. A later instance can have the same name.
func key(i *instance.Info) string { return fmt.Sprintf("%s %d", i.Files(), i.PID) }

// sample updates the interfaces of an instance, or the reason why they are unknown.
func (m *inspected) sample(ctx context.Context, name string, open func(context.Context, string) (sampler, error)) {
	if time.Now().Before(m.again) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, sampleLimit)
	defer cancel()
	var err error
	if m.sampler == nil {
		m.sampler, err = open(ctx, name)
	}
	if err == nil {
		m.links, err = m.sampler.Sample(ctx)
	}
	if err == nil {
		m.problem = ""
		return
	}
	m.close()
	m.problem = err.Error()
	if errors.Is(err, context.DeadlineExceeded) {
		m.problem, m.again = "does not answer", time.Now().Add(againAfter)
	}
}

// close ends the connection to an instance.
func (m *inspected) close() {
	if m.sampler != nil {
		_ = m.sampler.Close() // it was only read from
	}
	m.sampler, m.links = nil, nil
}

// newNode describes an instance. Interfaces that the stack does not report have no rates.
func newNode(i *instance.Info, m *inspected) Node {
	node := Node{Instance: newInstance(i), Problem: m.problem, Links: []End{}}
	for _, f := range i.Interfaces {
		end := End{Type: f.Type, Host: f.Host, Link: live.Link{Name: f.Name, Addrs: f.Addr}}
		if n := slices.IndexFunc(m.links, func(l live.Link) bool { return l.Name == f.Name }); n >= 0 {
			end.Link = m.links[n]
		}
		node.RxRate, node.TxRate = sum(node.RxRate, end.RxRate), sum(node.TxRate, end.TxRate)
		node.Links = append(node.Links, end)
	}
	return node
}

func sum(a, b sockdiag.Value) sockdiag.Value {
	return sockdiag.Value{N: a.N + b.N, Known: a.Known || b.Known}
}

// Close ends all connections.
func (o *overview) Close() error {
	for _, m := range o.all {
		m.close()
	}
	return nil
}
