// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/bench/lab"
	"github.com/lklrun/lklrun/bench/table"
)

var failoverVariants = []lab.Variant{lab.HostMPTCP, lab.Supervise}

func init() {
	register(Scenario{
		Order: 140, Name: "failover", Title: "MPTCP fail-over and preference", Seed: "001",
		About: fmt.Sprintf("One MPTCP connection over two links of %d Mbit/s, as in *MPTCP over two shaped links*; the first link is cut after %v. `cut=carrier`: the client's interface is set down. "+
			"`cut=silent`: both ends of the link drop all frames without a notification. `second=backup`: the second path is used only if no other is left; otherwise both are used. "+
			"`ms`: the time from the cut until the received rate is 80 %% of one link for 0.1 s, or %v if that never happens. "+
			"`share-before` and `share-after` are the second path's shares of the bytes on the wire.", failoverRate, failoverCut, failoverNever),
		Budget: Budget{Full: 150 * time.Second},
		Build:  buildFailover,
	})
}

const (
	failoverRate  = 200 // Mbit/s
	failoverCut   = 700 * time.Millisecond
	failoverSpan  = 2500 * time.Millisecond
	failoverNever = 10 * time.Second
	failoverTick  = 10 * time.Millisecond
	failoverPort  = "5011"
)

// A failoverRow describes how the first path is cut, and the role of the second
// path.
type failoverRow struct{ dir, cut, second string }

var failoverRows = []failoverRow{
	{"send", "carrier", "used"}, {"recv", "carrier", "used"}, {"send", "silent", "used"}, {"recv", "silent", "used"},
	{"recv", "carrier", "backup"}, {"send", "silent", "backup"},
}

func buildFailover(ctx context.Context, l *lab.Lab) ([]Measure, error) {
	k, err := makeLinks(ctx, l, "failover", 2, failoverRate)
	if err != nil {
		return nil, err
	}
	program, err := l.Native(ctx, "failover")
	if err != nil {
		return nil, err
	}
	if _, err := l.Start(ctx, l.In(k.server, lab.Unpinned, true, program, "serve", "0.0.0.0", failoverPort)...); err != nil {
		return nil, err
	}
	if err := l.WaitListen(ctx, k.server, failoverPort); err != nil {
		return nil, err
	}
	var measures []Measure
	for _, row := range failoverRows {
		for _, v := range failoverVariants {
			measures = append(measures, Measure{
				Key: table.Key{
					What: "cut", Placement: lab.Unpinned, Variant: v,
					Params: table.Params{"dir": row.dir, "cut": row.cut, "second": row.second},
				},
				Take:   func(ctx context.Context) (table.Sample, error) { return failOver(ctx, l, k, program, row, v) },
				Rounds: 3,
			})
		}
	}
	return measures, nil
}

// failOver cuts a path during a transfer.
func failOver(ctx context.Context, l *lab.Lab, k *links, program string, row failoverRow, v lab.Variant) (table.Sample, error) {
	argv := []string{program, row.dir, "10.71.1.1", failoverPort, strconv.FormatInt(failoverSpan.Milliseconds(), 10)}
	backup := row.second == "backup"
	if v == lab.HostMPTCP {
		if err := k.prefer(ctx, backup); err != nil {
			return nil, err
		}
		argv = k.program(v, 2, argv, nil)
	} else {
		argv = k.program(v, 2, argv, nil)
		for i, word := range argv {
			if backup && strings.HasPrefix(word, "tap:tap1,") {
				argv[i] = word + ",backup"
			}
		}
	}
	p, err := l.Start(ctx, argv...)
	if err != nil {
		return nil, err
	}
	defer p.Stop()
	if err := l.Until(ctx, "a connection", func() (bool, error) { return strings.HasPrefix(p.Lines()[0], "go"), ended(p) }); err != nil {
		return nil, err
	}
	first, second, err := k.carried(ctx)
	if err != nil {
		return nil, err
	}
	select {
	case <-time.After(failoverCut): // until then the path works
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	cut, mend := k.cut(v, row.cut)
	at := monotonic()
	if err := l.Run(ctx, cut...); err != nil {
		for _, line := range mend { // one by one, because some commands may fail
			_ = l.Run(context.WithoutCancel(ctx), line)
		}
		return nil, err
	}
	firstCut, secondCut, err := k.carried(ctx)
	if err == nil {
		select {
		case <-p.Done():
		case <-time.After(lab.RunLimit):
			err = fmt.Errorf("no end: %q", p.Lines())
		}
	}
	firstEnd, secondEnd, err2 := k.carried(ctx)
	err3 := l.Run(context.WithoutCancel(ctx), mend...)
	for _, e := range []error{err, err2, err3} {
		if e != nil {
			return nil, e
		}
	}
	lines := p.Lines() // lklrun's messages about the cut path follow these lines
	begin, ticks, err := course(lines[min(1, len(lines)-1)])
	if err != nil {
		return nil, fmt.Errorf("%w: %q", err, lines)
	}
	return table.Sample{
		"ms":           milliseconds(back(ticks, at-begin, 0.8*failoverRate*1e6/8)),
		"share-before": part(firstCut-first, secondCut-second),
		"share-after":  part(firstEnd-firstCut, secondEnd-secondCut),
	}, nil
}

// ended returns an error if the program has ended.
func ended(p *lab.Proc) error {
	select {
	case <-p.Done():
		return fmt.Errorf("it has ended: %q", p.Lines())
	default:
		return nil
	}
}

// prefer configures the host's client to use both paths, or to use the second path
// only as a backup.
func (k *links) prefer(ctx context.Context, backup bool) error {
	lines := []string{"ip -n " + k.client + " mptcp endpoint flush", "ip -n " + k.client + " mptcp limits set subflow 1 add_addr_accepted 1"}
	if backup {
		lines = []string{
			"ip -n " + k.client + " mptcp endpoint flush",
			"ip -n " + k.client + " mptcp endpoint add 10.71.2.2 dev br1 subflow backup",
			"ip -n " + k.client + " mptcp limits set subflow 1 add_addr_accepted 0",
		}
	}
	return k.lab.Run(ctx, lines...)
}

// cut returns the commands that cut the first path, and those that restore it.
func (k *links) cut(v lab.Variant, how string) (cut, mend []string) {
	if how == "carrier" {
		device := "tap0"
		if v == lab.HostMPTCP {
			device = "br0"
		}
		set := "ip -n " + k.client + " link set " + device
		return []string{set + " down"}, []string{set + " up"}
	}
	for _, end := range []struct{ ns, dev string }{{k.client, "v0"}, {k.server, "s0"}} {
		nft := "ip netns exec " + end.ns + " nft "
		cut = append(cut, nft+"add table netdev cut; add chain netdev cut frames { type filter hook ingress device "+end.dev+" priority 0; policy drop; }")
		mend = append(mend, nft+"delete table netdev cut")
	}
	return cut, mend
}

// carried returns the bytes that the server's end of each path has counted.
func (k *links) carried(ctx context.Context) (first, second float64, err error) {
	if _, first, err = traffic(ctx, k.lab, k.server, "s0"); err != nil {
		return 0, 0, err
	}
	_, second, err = traffic(ctx, k.lab, k.server, "s1")
	return first, second, err
}

// course parses the output of the program course: the start of a transfer, and the
// bytes of each tick.
func course(line string) (begin time.Duration, ticks []float64, err error) {
	for i, word := range strings.Fields(line) {
		n, err := strconv.ParseFloat(word, 64)
		if err != nil {
			return 0, nil, err
		}
		if i == 0 {
			begin = time.Duration(n * float64(time.Second))
			continue
		}
		ticks = append(ticks, n)
	}
	if len(ticks) == 0 {
		return 0, nil, fmt.Errorf("nothing arrived")
	}
	return begin, ticks, nil
}

// back returns the time until the transfer reaches a rate in bytes per second again
// and keeps it for ten ticks. The time ends at the first of these ticks.
func back(ticks []float64, from time.Duration, rate float64) time.Duration {
	const window = 10
	want := rate * window * failoverTick.Seconds()
	for i := max(int(from/failoverTick)+1, 0); i+window <= len(ticks); i++ {
		sum := 0.0
		for _, b := range ticks[i : i+window] {
			sum += b
		}
		if sum >= want && ticks[i] > 0 {
			return time.Duration(i)*failoverTick - from
		}
	}
	return failoverNever
}

func part(first, second float64) float64 {
	if first+second <= 0 {
		return 0
	}
	return second / (first + second)
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }

// monotonic returns the time of the clock that the measured programs use.
func monotonic() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}
