package channels

import (
	"context"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/roundrobin"
)

// RoundRobin is the name of a load balancing policy: gRPC's round_robin, except that a repeated call goes to another
// replica if there is one.
const RoundRobin = "headrace_turns"

// picksMax bounds the search for another replica: concurrent calls move the round robin on too, so the next pick may be
// the same replica again.
const picksMax = 16

func init() { balancer.Register(roundRobin{}) }

type roundRobin struct{}

func (roundRobin) Name() string { return RoundRobin }

func (roundRobin) Build(conn balancer.ClientConn, options balancer.BuildOptions) balancer.Balancer {
	return balancer.Get(roundrobin.Name).Build(pickerWrapper{conn}, options)
}

// pickerWrapper wraps the picker of round_robin in a retryPicker.
type pickerWrapper struct{ balancer.ClientConn }

func (p pickerWrapper) UpdateState(state balancer.State) {
	state.Picker = retryPicker{state.Picker}
	p.ClientConn.UpdateState(state)
}

type retryPicker struct{ balancer.Picker }

func (p retryPicker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	result, err := p.Picker.Pick(info)
	replica, ok := info.Ctx.Value(lastReplicaKey{}).(*lastReplica)
	if !ok {
		return result, err
	}
	for picks := 1; picks < picksMax && err == nil && result.SubConn == replica.last; picks++ {
		result, err = p.Picker.Pick(info)
	}
	replica.last = result.SubConn
	return result, err
}

type lastReplicaKey struct{}

// lastReplica holds the replica at which a call was last made.
type lastReplica struct{ last balancer.SubConn }

// withLastReplica returns the context of a call that may be repeated.
func withLastReplica(ctx context.Context) context.Context {
	return context.WithValue(ctx, lastReplicaKey{}, new(lastReplica))
}
