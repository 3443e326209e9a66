// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/bench/stacks"
	"github.com/lklrun/lklrun/bench/table"
)

// script contains one sample of each kind, from recordings of transfers.
const script = `lklbench   598  2697.134876:     500250 cpu-clock: 
	ffffffff821f5127 _copy_from_iter+0xd7 ([kernel.kallsyms])
	ffffffff821f5128 skb_copy_datagram_from_iter+0x1 ([kernel.kallsyms])
	ffffffff821f5129 tun_get_user+0x1 ([kernel.kallsyms])
	ffffffff821f512a tun_chr_write_iter+0x1 ([kernel.kallsyms])
	ffffffff821f512b do_syscall_64+0x1 ([kernel.kallsyms])
	          1abc12 lklh_net_write+0x12 (/root/bin/stacks/vanilla/liblkl.so)

lklbench   598  2697.134876:     500250 cpu-clock: 
	ffffffff821f5127 tcp_v4_rcv+0xd7 ([kernel.kallsyms])
	ffffffff821f5129 tun_get_user+0x1 ([kernel.kallsyms])
	          1abc12 lklh_net_write+0x12 (/root/bin/stacks/vanilla/liblkl.so)

lklbench   598  2697.134876:     500250 cpu-clock: 
	ffffffff821f5127 _raw_spin_unlock_irqrestore+0xd7 ([kernel.kallsyms])
	ffffffff821f5128 sock_def_readable+0x1 ([kernel.kallsyms])
	ffffffff821f5129 tcp_v4_rcv+0x1 ([kernel.kallsyms])

lklbench   598  2697.134876:     500250 cpu-clock: 
	ffffffff821f512b do_syscall_64+0x1 ([kernel.kallsyms])
	          1abc12 lklh_net_read+0x12 (/root/bin/stacks/vanilla/liblkl.so)

lklbench   598  2697.134876:     500250 cpu-clock: 
	          1abc12 copy_avx2+0x12 (/root/bin/stacks/vanilla/liblkl.so)

lklhost   599  2697.134876:     500250 cpu-clock: 
	          1abc12 tcp_v4_rcv.constprop.0+0x12 (/root/bin/stacks/vanilla/liblkl.so)
	           e2bc main+0x69c (/root/bin/lklhost)

lklhost   599  2697.134876:     500250 cpu-clock: 
	ffffffff821f5127 kfree+0xd7 ([kernel.kallsyms])
	ffffffff821f512b do_syscall_64+0x1 ([kernel.kallsyms])
	           e2bc main+0x69c (/root/bin/lklhost)

lklhost   599  2697.134876:     500250 cpu-clock: 
	           e2bc main+0x69c (/root/bin/lklhost)

a program   600  2697.134876:     500250 cpu-clock: 
	           e2bc main+0x69c (/root/bin/program)

swapper     0  2697.134876:     500250 cpu-clock: 
	ffffffff821f5127 pv_native_safe_halt+0xd7 ([kernel.kallsyms])
	ffffffff821f5128 do_idle+0x1 ([kernel.kallsyms])

swapper     0  2697.134876:     500250 cpu-clock: 
	ffffffff821f5127 finish_task_switch.isra.0+0xd7 ([kernel.kallsyms])
	ffffffff821f5127 __schedule+0xd7 ([kernel.kallsyms])
	ffffffff821f5128 do_idle+0x1 ([kernel.kallsyms])

cc1     0  2697.134876:     500250 cpu-clock: 
	ffffffff821f5127 __schedule+0xd7 ([kernel.kallsyms])
	          4bff9f main+0x1 (/usr/bin/elsewhere)

ksoftirqd/1     0  2697.134876:     500250 cpu-clock: 
	ffffffff821f5127 process_backlog+0xd7 ([kernel.kallsyms])
`

func TestOf(t *testing.T) {
	root, err := stacks.Read(strings.NewReader(script))
	if err != nil {
		t.Fatal(err)
	}
	p, err := Of(table.Key{Variant: "library"}, table.Sample{"Gbit/s": 8, "cpu-s/GB": 1.1}, root, 12, 2)
	if err != nil {
		t.Fatal(err)
	}
	// There are thirteen samples: one is idle, and one is from outside. Each of the
	// others is a tenth.
	want := map[string]int{
		rowTapWCopy: 1, rowHostReceive: 2, rowWake: 2, rowTapRead: 1, rowStackCopy: 1, rowStack: 1, rowOther: 1, rowEngine: 1, rowProgram: 1,
	}
	if p.Unit != "cpu-s/GB" || p.Count != 11 || len(p.Parts) != len(want) {
		t.Errorf("%+v", p)
	}
	for name, n := range want {
		if got := p.Part(name); math.Abs(got-0.1*float64(n)) > 1e-9 {
			t.Errorf("%s: %v, expected %d tenths", name, got, n)
		}
	}
	if math.Abs(p.Idle-0.5) > 1e-9 {
		t.Errorf("idle %v, expected half of 24 samples", p.Idle)
	}
	if p.Busiest != "lklbench" || math.Abs(p.Busy-5.0/12) > 1e-9 {
		t.Errorf("busiest %s, %v of a CPU, expected lklbench with 5 samples of 12", p.Busiest, p.Busy)
	}
	if !slices.IsSortedFunc(p.Parts, func(a, b table.Part) int { return slices.Index(rows, a.Name) - slices.Index(rows, b.Name) }) {
		t.Errorf("order: %v", p.Parts)
	}
}

func TestOfNothing(t *testing.T) {
	root, err := stacks.Read(strings.NewReader(script))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Of(table.Key{}, table.Sample{"Gbit/s": 8}, root, 12, 2); err == nil {
		t.Error("no CPU time, and no error")
	}
	if _, err := Of(table.Key{}, table.Sample{"cpu-s/GB": 1}, &stacks.Node{}, 12, 2); err == nil {
		t.Error("no samples, and no error")
	}
}

// TestRules checks that no function is listed for two rows, because a map would keep
// only one of them.
func TestRules(t *testing.T) {
	for row, c := range copies {
		if !slices.Contains(rows, row) || !slices.Contains(rows, c) {
			t.Errorf("%s: %s is not a row of the table", row, c)
		}
	}
	for file, r := range map[string]rules{"kernel": kernelRules, stackFile: stackRules, "libc": libcRules} {
		of := map[string]string{}
		for row, names := range r {
			for _, n := range strings.Fields(names) {
				if other, ok := of[n]; ok {
					t.Errorf("%s of %s is both %s and %s", n, file, other, row)
				}
				of[n] = row
			}
		}
	}
}
