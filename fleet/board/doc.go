// Package board is what holds on all hosts of a fleet: blocks, allows, rules and
// overrides, each a Notice. Every host keeps a copy of all of them (Copy) and
// brings it in step with the fleet's (Follower): a host that was away, or a
// Redis that lost its data, brings nothing back that was taken down.
//
// What a notice says is sealed with the fleet's secret: who can write to Redis
// and has no secret cannot make hosts block anyone.
package board
