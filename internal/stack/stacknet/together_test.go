// SPDX-License-Identifier: Apache-2.0

package stacknet_test

import (
	"errors"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/lklrun/lklrun/internal/stack/stacknet"
	"github.com/lklrun/lklrun/test/kit"
	"github.com/lklrun/lklrun/test/kit/lklhost"
)

// Changes sent together are each made once, and only those fail that the stack refuses,
// with the stack's message.
func TestTogether(t *testing.T) {
	h := lklhost.Start(t, kit.NewNetns(t, "stack"), lklhost.Library(t), "true")
	h.Boot(t)
	n, err := stacknet.Open(limit(t), h.Conn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	endpoint := func(addr string, id int) stacknet.Request {
		return stacknet.AddEndpoint(stacknet.Endpoint{ID: id, Addr: netip.MustParseAddr(addr), Ifindex: 1, Flags: stacknet.EndpointSubflow})
	}
	rule := func(addr string) stacknet.Request {
		return stacknet.AddRule(stacknet.Rule{Priority: 1000, Src: netip.MustParseAddr(addr), Table: 77})
	}
	lost := stacknet.SetRoute(stacknet.Route{Table: 77, Dst: netip.MustParsePrefix("10.9.0.0/16"), Gateway: netip.MustParseAddr("10.8.0.1"), Ifindex: 1})
	no := stacknet.DelEndpoint(stacknet.Endpoint{ID: 99, Addr: netip.MustParseAddr("10.0.0.9")})
	errs := n.Do(
		rule("10.0.0.1"), lost, rule("10.0.0.2"), rule("10.0.0.1"),
		endpoint("10.0.0.1", 1), endpoint("10.0.0.1", 2), endpoint("10.0.0.2", 2), no, endpoint("10.0.0.3", 2), endpoint("10.0.0.4", 4),
	)
	for i, want := range []error{nil, syscall.ENETUNREACH, nil, nil, nil, syscall.EEXIST, nil, nil, syscall.EBUSY, nil} {
		if (errs[i] == nil) != (want == nil) || !errors.Is(errs[i], want) {
			t.Errorf("change %d: %v, want %v", i, errs[i], want)
		}
	}
	if s := errs[5].Error(); !strings.HasPrefix(s, "too many addresses or duplicate one") {
		t.Errorf("the stack's words are not there: %s", s)
	}
	endpoints, err := n.Endpoints()
	if err != nil || len(endpoints) != 3 {
		t.Errorf("endpoints: %+v, %v", endpoints, err)
	}
	rules, err := n.Rules()
	if err != nil || len(rules) != 2 {
		t.Errorf("rules: %+v, %v", rules, err)
	}
	// The answers to these requests do not fit in the default buffer.
	many := make([]stacknet.Request, 2000)
	for i := range many {
		many[i] = lost
	}
	for i, err := range n.Do(many...) {
		if !errors.Is(err, syscall.ENETUNREACH) {
			t.Fatalf("change %d of 2000: %v", i, err)
		}
	}
}
