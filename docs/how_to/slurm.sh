#!/usr/bin/env bash
#SBATCH --job-name=rmlab
#SBATCH --array=1-16
#SBATCH --gres=gpu:1
#SBATCH --cpus-per-task=8
#SBATCH --time=04:00:00
#SBATCH --requeue

# sbatch --export=ALL,MODEL=owner/name,STORE=file:///shared/scores slurm.sh
# A part again, for example after the time limit: sbatch --array=3,7 --export=... slurm.sh
set -euo pipefail

# Not SLURM_ARRAY_TASK_COUNT: in an array of two parts that run again that is 2, and all parts would be others.
parts=${PARTS:-16}

rmlab score "${BENCHMARK:-rm-bench}" "$MODEL" --quiet \
  --store "$STORE" --shard "$SLURM_ARRAY_TASK_ID/$parts" > /dev/null
