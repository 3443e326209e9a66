// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"reflect"
	"testing"
)

func TestParseInfo(t *testing.T) {
	got := parseInfo("kernel=6.12.117\nfix=a\nfix=b\nmissing=c\ncongestion=bbr\nscheduler=default\nqdisc=fq\nlater=x\n")
	want := &Info{
		Kernel: "6.12.117", Fixes: []string{"a", "b"}, Missing: []string{"c"},
		Offers: Offers{Congestion: []string{"bbr"}, Schedulers: []string{"default"}, Qdiscs: []string{"fq"}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v; expected %+v", got, want)
	}
	if got := parseInfo(""); !reflect.DeepEqual(got, &Info{}) {
		t.Errorf("of nothing: %+v", got)
	}
}
