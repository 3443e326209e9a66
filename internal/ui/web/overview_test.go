// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/internal/diag/live"
)

// slowSampler never answers.
type slowSampler struct{}

func (slowSampler) Sample(ctx context.Context) ([]live.Link, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (slowSampler) Close() error { return nil }

// The overview joins the interfaces of state.json with their rates. It marks instances
// that cannot be reached, and continues with the others.
func TestOverview(t *testing.T) {
	h := &theatre{now: mixture()}
	opened := map[string]int{}
	o := &overview{list: h.list, all: map[string]*inspected{}}
	o.open = func(_ context.Context, name string) (sampler, error) {
		h.mu.Lock()
		opened[name]++
		h.mu.Unlock()
		switch name {
		case "broken":
			return slowSampler{}, nil
		case "phone":
			return nil, errors.New("no such socket")
		}
		return fakeSampler{h, name}, nil
	}
	take := func() map[string]string {
		t.Helper()
		v, err := o.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		nodes := map[string]string{}
		for _, n := range v.(Overview).Instances {
			text, err := json.Marshal(n)
			if err != nil {
				t.Fatal(err)
			}
			nodes[n.Name] = string(text)
		}
		return nodes
	}
	for range 2 {
		nodes := take()
		for name, want := range map[string]string{
			"mesh.server": `"rx_bit_s":120000000,"tx_bit_s":0,"links":[{"type":"wire","host":"mesh.up2","name":"eth0","index":2,"state":"up",`,
			"curl":        `"links":[{"type":"user","name":"eth0"`,
			"broken":      `"problem":"does not answer","links":[{"type":"tap","host":"tap0","name":"eth0"`,
			"phone":       `"problem":"no such socket"`,
		} {
			if !strings.Contains(nodes[name], want) {
				t.Errorf("%s: %s\nwant %s", name, nodes[name], want)
			}
		}
	}
	if opened["curl"] != 1 || opened["phone"] != 2 || opened["broken"] != 1 {
		t.Errorf("connections: %v; a stack that did not answer must not delay each sample", opened)
	}
	h.set(twoWires())
	if nodes := take(); len(nodes) != 2 || len(o.all) != 2 {
		t.Errorf("other instances: %v", nodes)
	}
	if err := o.Close(); err != nil {
		t.Error(err)
	}
}
