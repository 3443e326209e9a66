// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"strings"
	"time"

	"github.com/lklrun/lklrun/bench/lab"
	"github.com/lklrun/lklrun/bench/table"
)

const proxyPort = "6000"

func init() {
	register(Scenario{
		Order: 50, Name: "proxy", Title: "A proxy between two stacks", Seed: "002", Quick: true,
		About: "socat accepts a connection and opens another to a server on the host's loopback, 128 KiB for each " +
			"call. `host`: both connections are on the host's kernel, and the client uses veth. `supervise`: " +
			"socat runs under lklrun. The client's connection uses a tap and ends on the stack; the other one is " +
			"on the host's kernel (`--host-net 127.0.0.1`).",
		Budget: Budget{Quick: 15 * time.Second, Full: 50 * time.Second},
		Build:  buildProxy,
	})
}

func buildProxy(ctx context.Context, l *lab.Lab) ([]Measure, error) {
	w, err := l.Wire(ctx, lab.WireOptions{Name: "proxy"})
	if err != nil {
		return nil, err
	}
	var ms []Measure
	for _, p := range []string{lab.Unpinned, lab.OneCPU} {
		if err := w.Serve(ctx, p); err != nil {
			return nil, err
		}
		for _, verb := range []string{"send", "recv", "rr"} {
			for _, v := range []string{lab.Host, lab.Supervise} {
				k := table.Key{What: "proxy", Params: table.Params{"what": verb}, Placement: p, Variant: v}
				ms = append(ms, Measure{Key: k, Take: func(ctx context.Context) (table.Sample, error) {
					return throughProxy(ctx, l, w, p, verb, v)
				}})
			}
		}
	}
	return ms, nil
}

// throughProxy starts socat for one connection and sends a client through it.
func throughProxy(ctx context.Context, l *lab.Lab, w *lab.Wire, p, verb, variant string) (table.Sample, error) {
	socat := []string{"socat", "-b", "131072", "TCP-LISTEN:" + proxyPort + ",reuseaddr,nodelay", "TCP:127.0.0.1:" + w.Port(p) + ",nodelay"}
	arg := l.Milliseconds()
	if verb == rr {
		arg = l.Count()
	}
	netns, addr := w.Client, "10.80.1.1"
	var proxy *lab.Proc
	var err error
	listening := func() (bool, error) {
		return true, l.WaitListen(ctx, w.Server, proxyPort)
	}
	if variant == lab.Host {
		proxy, err = l.Start(ctx, l.In(w.Server, p, false, socat...)...)
	} else {
		netns, addr = w.Server, "10.79.1.2"
		r := lab.Run{Variant: variant, Placement: p, Wire: w, Flags: []string{"--host-net", "127.0.0.1"}}
		proxy, err = l.StartLklrun(ctx, r, "proxy", socat...)
		listening = func() (bool, error) {
			out, err := l.Output(ctx, l.Bin("lklctl"), "-n", "proxy", "netstat", "-ltnH")
			return strings.Contains(out, ":"+proxyPort), err
		}
	}
	if err != nil {
		return nil, err
	}
	defer proxy.Stop()
	if err := l.Until(ctx, "socat", listening); err != nil {
		return nil, err
	}
	return l.Sample(ctx, l.In(netns, p, false, l.Bench(), verb, addr, proxyPort, arg)...)
}
