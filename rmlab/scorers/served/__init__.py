"""Reward models behind servers: texts as they are sent, a streaming scorer, and its tests before it is believed."""
